// Numbers of a config.json, with bounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "format/metadata.h"

namespace hisparse::plan {

// Far beyond any model, and small enough that every product of sizes in a plan fits 64 bits.
inline constexpr std::int64_t kMaxWidth = 1 << 18;
inline constexpr std::int64_t kMaxHeads = 1 << 12;
inline constexpr std::int64_t kMaxHeadSize = 1 << 12;
inline constexpr std::int64_t kMaxAllHeads = 1 << 20;  // values of all heads together
inline constexpr std::int64_t kMaxLayers = 1 << 10;
inline constexpr std::int64_t kMaxExperts = 1 << 12;
inline constexpr std::int64_t kMaxVocabulary = 1 << 24;
inline constexpr std::int64_t kMaxPosition = 1 << 24;
inline constexpr std::int64_t kMaxMtpLayers = 8;

// Reads key after key and keeps the first error, which names its key. After an error every value is
// the least that is allowed, so a caller reads all and asks status() once.
class FieldReader final {
 public:
  explicit FieldReader(const format::Metadata& metadata) : metadata_(metadata) {}

  // 1 to `limit`; the key must be there.
  std::int64_t positive(std::string_view key, std::int64_t limit);
  // The same with a value for an absent key.
  std::int64_t positive_or(std::string_view key, std::int64_t fallback, std::int64_t limit);
  // 0 to `limit`.
  std::int64_t count(std::string_view key, std::int64_t limit);
  std::int64_t count_or(std::string_view key, std::int64_t fallback, std::int64_t limit);
  bool flag_or(std::string_view key, bool fallback);
  std::string text_or(std::string_view key, std::string fallback);
  void fail(const absl::Status& status);

  const format::Metadata& metadata() const { return metadata_; }
  const absl::Status& status() const { return status_; }

 private:
  std::int64_t within(std::string_view key, std::int64_t least, std::int64_t limit);

  const format::Metadata& metadata_;
  absl::Status status_;
};

}  // namespace hisparse::plan
