// Whatever the bytes, the readers of config.json and of the shard index give an error or plain
// values.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "format/hugging_face.h"
#include "format/json_metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hisparse;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto values = format::parse_json_metadata(text, "config.json", "p.");
  if (values.ok()) {
    for (const auto& [key, value] : *values) HS_CHECK(key.starts_with("p."));
  }
  const auto shards = format::parse_weight_map(text, "model.safetensors.index.json");
  if (shards.ok()) {
    for (const auto& [tensor, shard] : *shards) HS_CHECK(shard.find('/') == std::string::npos);
  }
  return 0;
}
