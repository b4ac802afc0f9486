#include "format/json_parse.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "format/untrusted_text.h"

namespace hisparse::format {
namespace {

using Json = nlohmann::json;

// Builds the document from parser events, which is the only place where a duplicate key still
// shows. Returning false from an event stops the parser; reason() then says why.
class DocumentBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit DocumentBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(Json(nullptr)) != nullptr; }
  bool boolean(bool value) override { return add(Json(value)) != nullptr; }
  bool number_integer(std::int64_t value) override { return add(Json(value)) != nullptr; }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse_integer(std::to_string(value));
    }
    return add(Json(static_cast<std::int64_t>(value))) != nullptr;
  }
  bool number_float(double value, const std::string& literal) override {
    // The library reads an integer that fits no 64 bits as a double.
    if (literal.find_first_of(".eE") == std::string::npos) return refuse_integer(literal);
    return add(Json(value)) != nullptr;
  }
  bool string(std::string& value) override { return add(Json(std::move(value))) != nullptr; }
  bool binary(Json::binary_t&) override { return refuse("holds a binary value"); }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(std::string& name) override {
    const auto [slot, is_new] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    if (!is_new) return refuse("holds the key " + in_quotes(name) + " twice in one object");
    member_ = &slot->second;
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    return refuse("is not valid JSON (or not UTF-8) at byte " + std::to_string(position));
  }

  Json take() { return std::move(root_); }
  const std::string& reason() const { return reason_; }

 private:
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool refuse_integer(const std::string& literal) {
    return refuse("holds the integer " + in_quotes(literal) +
                  ", which does not fit in 64 signed bits");
  }

  // Null, with the reason set, when the document has too many values.
  Json* add(Json value) {
    if (++values_ > limits_.max_values) {
      refuse("holds more than " + std::to_string(limits_.max_values) + " values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& elements = open_.back()->get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      return &elements.back();
    }
    *member_ = std::move(value);
    return member_;
  }

  bool open(Json container) {
    if (open_.size() >= static_cast<std::size_t>(limits_.max_depth)) {
      return refuse("is nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    Json* placed = add(std::move(container));
    if (placed != nullptr) open_.push_back(placed);
    return placed != nullptr;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*> open_;  // containers not yet closed, outermost first; siblings never move them
  Json* member_ = nullptr;   // where the value of the last key goes
  std::size_t values_ = 0;
  std::string reason_;
};

}  // namespace

absl::StatusOr<nlohmann::json> parse_json_object(std::string_view text, std::string_view file,
                                                 const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return bad_file(file, "is JSON of " + std::to_string(text.size()) + " bytes; the limit is " +
                              std::to_string(limits.max_bytes));
  }
  // The library takes a NUL for the end of the text and would ignore what follows.
  if (text.find('\0') != std::string_view::npos)
    return bad_file(file, "holds a NUL byte in its JSON");
  try {
    DocumentBuilder builder(limits);
    if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
      return bad_file(file, builder.reason());
    }
    Json document = builder.take();
    if (!document.is_object()) return bad_file(file, "must hold a JSON object");
    return document;
  } catch (const Json::exception& error) {
    return bad_file(file, "cannot be read as JSON: " + in_quotes(error.what()));
  }
}

}  // namespace hisparse::format
