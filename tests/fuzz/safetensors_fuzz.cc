// Whatever the bytes, parse_safetensors() gives an error or views that fill the data section in
// order.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hisparse;
  const auto file = std::as_bytes(std::span(data, size));
  const auto parsed = format::parse_safetensors(file, "fuzz.safetensors");
  if (!parsed.ok() || parsed->empty()) return 0;
  const std::byte* next = parsed->front().bytes.data();
  HS_CHECK(next > file.data());
  for (const format::TensorView& tensor : *parsed) {
    HS_CHECK(tensor.bytes.data() == next);
    next += tensor.bytes.size();
  }
  HS_CHECK(next == file.data() + file.size());
  return 0;
}
