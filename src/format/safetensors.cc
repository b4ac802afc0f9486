#include "format/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "format/json_parse.h"
#include "format/tensor_size.h"
#include "format/untrusted_text.h"

namespace hisparse::format {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the header length is read in place");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeaderBytes = 100'000'000;
constexpr std::string_view kFileMetadataKey = "__metadata__";

struct Entry {
  TensorView view;
  std::uint64_t begin = 0;  // from the start of the data section
  std::uint64_t end = 0;
};

std::optional<base::DType> dtype_named(std::string_view name) {
  if (name == "F32") return base::DType::kF32;
  if (name == "F16") return base::DType::kF16;
  if (name == "BF16") return base::DType::kBF16;
  return std::nullopt;
}

// Reads the entries of one header; every error names the file and, within an entry, its tensor.
class HeaderReader final {
 public:
  HeaderReader(std::string_view file_name, std::span<const std::byte> data)
      : file_name_(file_name), data_(data) {}

  absl::StatusOr<std::vector<TensorView>> read(const Json& header) const {
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == kFileMetadataKey) {
        HS_RETURN_IF_ERROR(check_file_metadata(value));
        continue;
      }
      HS_ASSIGN_OR_RETURN(Entry entry, read_entry(name, value));
      entries.push_back(std::move(entry));
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end, a.view.name) < std::tie(b.begin, b.end, b.view.name);
    });
    return place(std::move(entries));
  }

 private:
  absl::Status bad_tensor(std::string_view tensor, std::string_view reason) const {
    return bad_file(file_name_, "tensor " + in_quotes(tensor) + " " + std::string(reason));
  }

  absl::Status check_file_metadata(const Json& value) const {
    const bool well_formed =
        value.is_object() &&
        std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); });
    if (well_formed) return absl::OkStatus();
    return bad_file(file_name_, "__metadata__ must be an object of strings");
  }

  absl::StatusOr<Entry> read_entry(const std::string& name, const Json& value) const {
    if (!value.is_object()) return bad_tensor(name, "is not described by an object");
    for (const auto& [key, unused] : value.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        return bad_tensor(name, "has the unknown member " + in_quotes(key));
      }
    }
    Entry entry;
    entry.view.name = name;
    HS_ASSIGN_OR_RETURN(entry.view.dtype, read_dtype(name, value));
    HS_ASSIGN_OR_RETURN(entry.view.shape, read_integers(name, value, "shape"));
    HS_ASSIGN_OR_RETURN(const auto offsets, read_integers(name, value, "data_offsets"));
    if (offsets.size() != 2) return bad_tensor(name, "needs two numbers in data_offsets");
    entry.begin = static_cast<std::uint64_t>(offsets[0]);
    entry.end = static_cast<std::uint64_t>(offsets[1]);
    HS_RETURN_IF_ERROR(check_extent(entry));
    return entry;
  }

  absl::StatusOr<base::DType> read_dtype(const std::string& name, const Json& value) const {
    const auto found = value.find("dtype");
    if (found == value.end() || !found->is_string()) return bad_tensor(name, "has no dtype string");
    const auto& dtype_name = found->get_ref<const std::string&>();
    const std::optional<base::DType> dtype = dtype_named(dtype_name);
    if (dtype) return *dtype;
    return bad_tensor(name,
                      "has dtype " + in_quotes(dtype_name) +
                          ", which is not supported: convert the checkpoint to F32, F16 or BF16");
  }

  // A list of integers >= 0.
  absl::StatusOr<std::vector<std::int64_t>> read_integers(const std::string& name,
                                                          const Json& value,
                                                          const char* member) const {
    const auto found = value.find(member);
    if (found == value.end() || !found->is_array()) {
      return bad_tensor(name, std::string("has no list ") + member);
    }
    std::vector<std::int64_t> numbers;
    numbers.reserve(found->size());
    for (const Json& element : *found) {
      if (!element.is_number_integer() || element.get<std::int64_t>() < 0) {
        return bad_tensor(
            name, std::string("has a ") + member + " element that is not an integer of at least 0");
      }
      numbers.push_back(element.get<std::int64_t>());
    }
    return numbers;
  }

  absl::Status check_extent(const Entry& entry) const {
    const std::string& name = entry.view.name;
    if (entry.begin > entry.end) return bad_tensor(name, "ends before it begins");
    if (entry.end > data_.size()) {
      return bad_tensor(name, "ends at byte " + std::to_string(entry.end) +
                                  " of a data section of " + std::to_string(data_.size()) +
                                  " bytes; the file is truncated or damaged: fetch it again");
    }
    const std::optional<std::uint64_t> bytes = stored_bytes(entry.view.dtype, entry.view.shape);
    if (!bytes) return bad_tensor(name, "has a shape whose size overflows 63 bits");
    if (*bytes == entry.end - entry.begin) return absl::OkStatus();
    return bad_tensor(name, "takes " + std::to_string(entry.end - entry.begin) +
                                " bytes in the file, but its shape and dtype need " +
                                std::to_string(*bytes));
  }

  absl::StatusOr<std::vector<TensorView>> place(std::vector<Entry> entries) const {
    std::vector<TensorView> views;
    views.reserve(entries.size());
    std::uint64_t filled = 0;
    for (Entry& entry : entries) {
      if (entry.begin != filled) {
        return bad_tensor(entry.view.name,
                          "begins at byte " + std::to_string(entry.begin) +
                              " of the data section, but the data before it ends at byte " +
                              std::to_string(filled) + " (a hole or an overlap)");
      }
      filled = entry.end;
      entry.view.bytes = data_.subspan(entry.begin, entry.end - entry.begin);
      views.push_back(std::move(entry.view));
    }
    if (filled == data_.size()) return views;
    return bad_file(file_name_, "holds " + std::to_string(data_.size() - filled) +
                                    " bytes behind its last tensor");
  }

  const std::string_view file_name_;
  const std::span<const std::byte> data_;
};

}  // namespace

absl::StatusOr<std::vector<TensorView>> parse_safetensors(std::span<const std::byte> file,
                                                          std::string_view file_name) {
  if (file.size() < kLengthBytes) {
    return bad_file(file_name, "is too short to be a safetensors file (" +
                                   std::to_string(file.size()) + " bytes)");
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  const std::span<const std::byte> rest = file.subspan(kLengthBytes);
  if (header_bytes > kLongestHeaderBytes) {
    return bad_file(file_name, "claims a header of " + std::to_string(header_bytes) +
                                   " bytes; the format allows " +
                                   std::to_string(kLongestHeaderBytes) +
                                   " (is it a safetensors file?)");
  }
  if (header_bytes > rest.size()) {
    return bad_file(file_name, "claims a header of " + std::to_string(header_bytes) +
                                   " bytes, but " + std::to_string(rest.size()) +
                                   " follow; the file is truncated or damaged: fetch it again");
  }
  const std::string_view header(reinterpret_cast<const char*>(rest.data()), header_bytes);
  if (!header.starts_with('{'))
    return bad_file(file_name, "has a header that is not a JSON object");
  HS_ASSIGN_OR_RETURN(const Json document,
                      parse_json_object(header, file_name, kWeightIndexLimits));
  return HeaderReader(file_name, rest.subspan(header_bytes)).read(document);
}

}  // namespace hisparse::format
