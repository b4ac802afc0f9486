// Whatever the bytes, decode_manifest() gives an error or pages within its bounds, and the
// controller takes over whole chains of them with every invariant kept.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "kv/lifecycle_controller.h"
#include "transfer/manifest_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hisparse;
  constexpr std::int32_t kSlots = 16;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto content = transfer::decode_manifest(bytes, kSlots);
  if (!content.ok()) return 0;
  for (const kv::PersistedPage& page : content->pages) {
    HS_CHECK(page.slot.value() >= 0 && page.slot.value() < kSlots);
    HS_CHECK(page.tokens.size() == static_cast<std::size_t>(content->header.page_tokens));
  }
  kv::LifecycleController controller({.page_tokens = content->header.page_tokens,
                                      .resident_slots = 1,
                                      .disk_slots = kSlots,
                                      .persistence = kv::Persistence::kOn});
  controller.adopt(content->pages);
  HS_CHECK(!controller.check_invariants());
  return 0;
}
