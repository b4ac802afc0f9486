#include "format/digest.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/check.h"
#include "xxhash.h"

namespace hisparse::format {
namespace {

constexpr std::size_t kSampleBytes = 4096;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class Hasher final {
 public:
  Hasher() : state_(XXH3_createState()) {
    HS_CHECK(state_ != nullptr && XXH3_128bits_reset(state_.get()) == XXH_OK);
  }

  void add(std::int64_t value) { add_bytes(&value, sizeof(value)); }
  void add(double value) { add_bytes(&value, sizeof(value)); }
  void add(bool value) { add(static_cast<std::int64_t>(value)); }
  void add(std::string_view text) {
    add_size(text.size());
    add_bytes(text.data(), text.size());
  }
  void add(const std::string& text) { add(std::string_view(text)); }
  template <typename T>
  void add(const std::vector<T>& list) {
    add_size(list.size());
    for (const T& element : list) add(element);
  }
  void add_content(std::span<const std::byte> bytes) {
    add_size(bytes.size());
    if (bytes.size() <= 2 * kSampleBytes) return add_bytes(bytes.data(), bytes.size());
    add_bytes(bytes.data(), kSampleBytes);
    add_bytes(bytes.data() + bytes.size() - kSampleBytes, kSampleBytes);
  }
  void add_all(std::span<const std::byte> bytes) {
    add_size(bytes.size());
    add_bytes(bytes.data(), bytes.size());
  }
  void add_size(std::size_t size) { add(static_cast<std::int64_t>(size)); }

  std::string hex() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    static constexpr char kHex[] = "0123456789abcdef";
    std::string out;
    for (const unsigned char byte : canonical.digest) out += {kHex[byte >> 4], kHex[byte & 0xf]};
    return out;
  }

 private:
  void add_bytes(const void* data, std::size_t size) {
    if (size > 0) HS_CHECK(XXH3_128bits_update(state_.get(), data, size) == XXH_OK);
  }

  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

}  // namespace

std::string content_digest(std::span<const TensorView> tensors) {
  Hasher hasher;
  for (const TensorView& tensor : tensors) hasher.add_all(tensor.bytes);
  return hasher.hex();
}

std::string checkpoint_digest(const Metadata& metadata, std::span<const TensorView> tensors) {
  Hasher hasher;
  hasher.add_size(metadata.values().size());
  for (const auto& [key, value] : metadata.values()) {
    hasher.add(key);
    hasher.add_size(value.index());
    std::visit([&](const auto& held) { hasher.add(held); }, value);
  }
  hasher.add_size(tensors.size());
  for (const TensorView& tensor : tensors) {
    hasher.add(tensor.name);
    hasher.add(base::name_of(tensor.dtype));
    hasher.add(tensor.shape);
    hasher.add_content(tensor.bytes);
  }
  return hasher.hex();
}

}  // namespace hisparse::format
