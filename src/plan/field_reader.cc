#include "plan/field_reader.h"

#include <utility>

namespace hisparse::plan {

void FieldReader::fail(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

std::int64_t FieldReader::within(std::string_view key, std::int64_t least, std::int64_t limit) {
  const absl::StatusOr<std::int64_t> value = metadata_.get_int(key);
  if (!value.ok()) {
    fail(value.status());
    return least;
  }
  if (*value < least || *value > limit) {
    fail(absl::InvalidArgumentError(std::string(key) + " is " + std::to_string(*value) +
                                    ", outside " + std::to_string(least) + " to " +
                                    std::to_string(limit)));
    return least;
  }
  return *value;
}

std::int64_t FieldReader::positive(std::string_view key, std::int64_t limit) {
  return within(key, 1, limit);
}

std::int64_t FieldReader::positive_or(std::string_view key, std::int64_t fallback,
                                      std::int64_t limit) {
  return metadata_.has(key) ? within(key, 1, limit) : fallback;
}

std::int64_t FieldReader::count(std::string_view key, std::int64_t limit) {
  return within(key, 0, limit);
}

std::int64_t FieldReader::count_or(std::string_view key, std::int64_t fallback,
                                   std::int64_t limit) {
  return metadata_.has(key) ? within(key, 0, limit) : fallback;
}

bool FieldReader::flag_or(std::string_view key, bool fallback) {
  const absl::StatusOr<bool> value = metadata_.bool_or(key, fallback);
  if (!value.ok()) fail(value.status());
  return value.ok() ? *value : fallback;
}

std::string FieldReader::text_or(std::string_view key, std::string fallback) {
  absl::StatusOr<std::string> value = metadata_.string_or(key, std::move(fallback));
  if (value.ok()) return *std::move(value);
  fail(value.status());
  return "";
}

}  // namespace hisparse::plan
