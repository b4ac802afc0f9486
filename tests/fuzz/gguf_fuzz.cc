// Whatever the bytes, parse_gguf() gives an error or views that lie inside them.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "format/dequantize.h"
#include "format/digest.h"
#include "format/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hisparse;
  const auto file = std::as_bytes(std::span(data, size));
  const auto parsed = format::parse_gguf(file, "fuzz.gguf");
  if (!parsed.ok()) return 0;
  for (const format::TensorView& tensor : parsed->tensors) {
    HS_CHECK(tensor.bytes.data() >= file.data());
    HS_CHECK(tensor.bytes.size() <= file.size() - (tensor.bytes.data() - file.data()));
    const base::BlockShape block = base::block_shape(tensor.dtype);
    const std::size_t blocks = tensor.bytes.size() / static_cast<std::size_t>(block.bytes);
    std::vector<float> values(blocks * static_cast<std::size_t>(block.values));
    format::dequantize_row(tensor.dtype, tensor.bytes, values);
  }
  HS_CHECK(format::checkpoint_digest(parsed->metadata, parsed->tensors).size() == 32);
  return 0;
}
