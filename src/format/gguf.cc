#include "format/gguf.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/status.h"
#include "format/gguf_cursor.h"
#include "format/gguf_values.h"
#include "format/tensor_size.h"
#include "format/untrusted_text.h"

namespace hisparse::format {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kOldestVersion = 2;
constexpr std::uint32_t kNewestVersion = 3;
constexpr std::uint32_t kSwappedNewestVersion = 0x03000000;
// Metadata and tensor descriptions are copied; the largest vocabularies need some tens of MiB.
constexpr std::uint64_t kLargestHeaderBytes = 1u << 30;
constexpr std::uint64_t kMostTensors = 1u << 20;
constexpr std::uint64_t kMostPairs = 1u << 16;
constexpr std::uint64_t kLongestKeyBytes = 65535;
constexpr std::uint64_t kLongestNameBytes = 64;
constexpr std::uint32_t kMostDimensions = 4;
// An empty name, no dimensions, a type and an offset.
constexpr std::uint64_t kSmallestDescriptionBytes = 24;
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::string_view kSplitCountKey = "split.count";
constexpr std::int64_t kDefaultAlignment = 32;
constexpr std::int64_t kLeastAlignment = 8;
constexpr std::int64_t kMostAlignment = 1 << 20;

struct TensorType {
  std::uint32_t number;
  std::string_view name;
  std::optional<base::DType> dtype;  // empty when not supported
};

constexpr TensorType kTensorTypes[] = {
    {0, "F32", base::DType::kF32},
    {1, "F16", base::DType::kF16},
    {2, "Q4_0", base::DType::kQ4_0},
    {3, "Q4_1", base::DType::kQ4_1},
    {6, "Q5_0", {}},
    {7, "Q5_1", {}},
    {8, "Q8_0", base::DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", {}},
    {13, "Q5_K", {}},
    {14, "Q6_K", {}},
    {15, "Q8_K", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {30, "BF16", base::DType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
    {40, "NVFP4", {}},
    {41, "Q1_0", {}},
    {42, "Q2_0", {}},
};

const TensorType* tensor_type(std::uint32_t number) {
  const auto* found = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                   [&](const TensorType& type) { return type.number == number; });
  return found == std::end(kTensorTypes) ? nullptr : found;
}

struct Description {
  TensorView view;
  std::uint64_t offset = 0;  // from the start of the data section
};

class GgufParser final {
 public:
  GgufParser(std::span<const std::byte> file, std::string_view file_name)
      : file_(file),
        file_name_(file_name),
        cursor_(file.first(std::min<std::uint64_t>(file.size(), kLargestHeaderBytes))) {}

  absl::StatusOr<GgufContents> parse() {
    HS_RETURN_IF_ERROR(read_header());
    HS_ASSIGN_OR_RETURN(Metadata metadata, read_metadata());
    HS_RETURN_IF_ERROR(check_not_split(metadata));
    HS_ASSIGN_OR_RETURN(const std::uint64_t alignment, alignment_of(metadata));
    HS_ASSIGN_OR_RETURN(std::vector<Description> descriptions, read_descriptions());
    HS_ASSIGN_OR_RETURN(std::vector<TensorView> tensors, place(std::move(descriptions), alignment));
    return GgufContents{std::move(metadata), std::move(tensors)};
  }

 private:
  absl::Status bad(std::string_view reason) const { return bad_file(file_name_, reason); }
  absl::Status bad_tensor(std::string_view tensor, std::string_view reason) const {
    return bad("tensor " + in_quotes(tensor) + " " + std::string(reason));
  }
  absl::Status truncated(const std::string& where) const {
    return bad("ends inside " + where + " (at byte " + std::to_string(cursor_.position()) +
               "); the file is truncated or damaged: fetch it again");
  }

  absl::Status read_header();
  absl::Status check_count(std::uint64_t count, const char* what, std::uint64_t smallest_bytes,
                           std::uint64_t most) const;
  absl::Status check_version(std::uint32_t version) const;
  absl::StatusOr<Metadata> read_metadata();
  absl::StatusOr<std::string_view> read_key(std::uint64_t index);
  absl::StatusOr<std::int64_t> int_or(const Metadata& metadata, std::string_view key,
                                      std::int64_t fallback) const;
  absl::Status check_not_split(const Metadata& metadata) const;
  absl::StatusOr<std::uint64_t> alignment_of(const Metadata& metadata) const;
  absl::StatusOr<std::vector<Description>> read_descriptions();
  absl::StatusOr<Description> read_description(std::uint64_t index);
  absl::StatusOr<std::string> read_tensor_name(std::uint64_t index);
  absl::StatusOr<std::vector<std::int64_t>> read_shape(const std::string& tensor);
  absl::StatusOr<base::DType> read_dtype(const std::string& tensor);
  absl::StatusOr<std::vector<TensorView>> place(std::vector<Description> descriptions,
                                                std::uint64_t alignment) const;
  absl::StatusOr<std::span<const std::byte>> bytes_of(const Description& description,
                                                      std::span<const std::byte> data) const;
  absl::Status check_no_overlap(std::vector<Description> descriptions) const;

  const std::span<const std::byte> file_;
  const std::string_view file_name_;
  GgufCursor cursor_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t pair_count_ = 0;
};

absl::Status GgufParser::check_version(std::uint32_t version) const {
  if (version >= kOldestVersion && version <= kNewestVersion) return absl::OkStatus();
  if (version == kSwappedNewestVersion) return bad("is a big-endian GGUF file; convert it again");
  return bad("has GGUF version " + std::to_string(version) +
             "; versions 2 and 3 are read: convert the model again with a current converter");
}

absl::Status GgufParser::check_count(std::uint64_t count, const char* what,
                                     std::uint64_t smallest_bytes, std::uint64_t most) const {
  const std::string claim = "claims " + std::to_string(count) + " " + what;
  if (count > cursor_.remaining() / smallest_bytes) {
    return bad(claim + ", more than its size allows; it is truncated or damaged: fetch it again");
  }
  if (count > most) return bad(claim + "; this reader takes " + std::to_string(most));
  return absl::OkStatus();
}

absl::Status GgufParser::read_header() {
  if (!has_gguf_magic(file_)) return bad("does not begin with the GGUF magic");
  cursor_.read<std::uint32_t>();
  const std::optional<std::uint32_t> version = cursor_.read<std::uint32_t>();
  if (!version) return truncated("its header");
  HS_RETURN_IF_ERROR(check_version(*version));
  const std::optional<std::uint64_t> tensors = cursor_.read<std::uint64_t>();
  const std::optional<std::uint64_t> pairs = cursor_.read<std::uint64_t>();
  if (!tensors || !pairs) return truncated("its header");
  HS_RETURN_IF_ERROR(check_count(*tensors, "tensors", kSmallestDescriptionBytes, kMostTensors));
  HS_RETURN_IF_ERROR(check_count(*pairs, "metadata pairs", kSmallestGgufPairBytes, kMostPairs));
  tensor_count_ = *tensors;
  pair_count_ = *pairs;
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> GgufParser::read_key(std::uint64_t index) {
  const std::string where = "the key of metadata pair " + std::to_string(index);
  const std::optional<std::string_view> key = cursor_.read_string();
  if (!key) return truncated(where);
  if (key->empty() || key->size() > kLongestKeyBytes) {
    return bad(where + " has " + std::to_string(key->size()) + " bytes; 1 to " +
               std::to_string(kLongestKeyBytes) + " are allowed");
  }
  if (!is_valid_utf8(*key)) return bad(where + " is not UTF-8: " + in_quotes(*key));
  return *key;
}

absl::StatusOr<Metadata> GgufParser::read_metadata() {
  std::map<std::string, MetadataValue, std::less<>> values;
  GgufValueReader reader(cursor_, file_name_);
  for (std::uint64_t i = 0; i < pair_count_; ++i) {
    HS_ASSIGN_OR_RETURN(const std::string_view key, read_key(i));
    HS_ASSIGN_OR_RETURN(MetadataValue value, reader.read(key));
    if (!values.emplace(key, std::move(value)).second) {
      return bad("holds the metadata key " + in_quotes(key) + " twice");
    }
  }
  return Metadata(std::move(values));
}

absl::StatusOr<std::int64_t> GgufParser::int_or(const Metadata& metadata, std::string_view key,
                                                std::int64_t fallback) const {
  absl::StatusOr<std::int64_t> value = metadata.int_or(key, fallback);
  if (!value.ok()) return bad(std::string(value.status().message()));
  return value;
}

absl::Status GgufParser::check_not_split(const Metadata& metadata) const {
  HS_ASSIGN_OR_RETURN(const std::int64_t parts, int_or(metadata, kSplitCountKey, 1));
  if (parts <= 1) return absl::OkStatus();
  return bad("is one of " + std::to_string(parts) +
             " parts of a split model; merge the parts into one file first");
}

absl::StatusOr<std::uint64_t> GgufParser::alignment_of(const Metadata& metadata) const {
  HS_ASSIGN_OR_RETURN(const std::int64_t alignment,
                      int_or(metadata, kAlignmentKey, kDefaultAlignment));
  if (alignment < kLeastAlignment || alignment > kMostAlignment ||
      !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    return bad("has general.alignment " + std::to_string(alignment) +
               "; a power of two from 8 to 1048576 is needed");
  }
  return static_cast<std::uint64_t>(alignment);
}

absl::StatusOr<std::string> GgufParser::read_tensor_name(std::uint64_t index) {
  const std::string where = "the name of tensor " + std::to_string(index);
  const std::optional<std::string_view> name = cursor_.read_string();
  if (!name) return truncated(where);
  if (name->empty() || name->size() > kLongestNameBytes) {
    return bad(where + " has " + std::to_string(name->size()) + " bytes; 1 to " +
               std::to_string(kLongestNameBytes) + " are allowed");
  }
  if (!is_valid_utf8(*name)) return bad(where + " is not UTF-8: " + in_quotes(*name));
  return std::string(*name);
}

absl::StatusOr<std::vector<std::int64_t>> GgufParser::read_shape(const std::string& tensor) {
  const std::optional<std::uint32_t> rank = cursor_.read<std::uint32_t>();
  if (!rank) return truncated("the description of tensor " + in_quotes(tensor));
  if (*rank > kMostDimensions) {
    return bad_tensor(tensor,
                      "has " + std::to_string(*rank) + " dimensions; at most 4 are allowed");
  }
  std::vector<std::int64_t> shape(*rank);
  for (std::int64_t& dimension : shape) {
    const std::optional<std::uint64_t> stored = cursor_.read<std::uint64_t>();
    if (!stored) return truncated("the description of tensor " + in_quotes(tensor));
    if (*stored == 0 || *stored > std::numeric_limits<std::int64_t>::max()) {
      return bad_tensor(tensor, "has the dimension " + std::to_string(*stored));
    }
    dimension = static_cast<std::int64_t>(*stored);
  }
  std::reverse(shape.begin(), shape.end());  // the file lists the innermost dimension first
  return shape;
}

absl::StatusOr<base::DType> GgufParser::read_dtype(const std::string& tensor) {
  const std::optional<std::uint32_t> number = cursor_.read<std::uint32_t>();
  if (!number) return truncated("the description of tensor " + in_quotes(tensor));
  const TensorType* type = tensor_type(*number);
  if (type != nullptr && type->dtype) return *type->dtype;
  const std::string name = type == nullptr ? "unknown" : std::string(type->name);
  return bad_tensor(tensor, "has type " + std::to_string(*number) + " (" + name +
                                "), which is not supported: use a file with F32, F16, BF16, Q8_0, "
                                "Q4_0 or Q4_1 tensors");
}

absl::StatusOr<Description> GgufParser::read_description(std::uint64_t index) {
  Description description;
  TensorView& view = description.view;
  HS_ASSIGN_OR_RETURN(view.name, read_tensor_name(index));
  HS_ASSIGN_OR_RETURN(view.shape, read_shape(view.name));
  HS_ASSIGN_OR_RETURN(view.dtype, read_dtype(view.name));
  const std::optional<std::uint64_t> offset = cursor_.read<std::uint64_t>();
  if (!offset) return truncated("the description of tensor " + in_quotes(view.name));
  description.offset = *offset;
  return description;
}

absl::StatusOr<std::vector<Description>> GgufParser::read_descriptions() {
  std::vector<Description> descriptions;
  std::unordered_set<std::string> names;
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    HS_ASSIGN_OR_RETURN(Description description, read_description(i));
    if (!names.insert(description.view.name).second) {
      return bad("holds the tensor " + in_quotes(description.view.name) + " twice");
    }
    descriptions.push_back(std::move(description));
  }
  return descriptions;
}

absl::StatusOr<std::span<const std::byte>> GgufParser::bytes_of(
    const Description& description, std::span<const std::byte> data) const {
  const TensorView& view = description.view;
  const int block = base::block_shape(view.dtype).values;
  const std::int64_t row = view.shape.empty() ? 1 : view.shape.back();
  if (row % block != 0) {
    return bad_tensor(view.name, "has rows of " + std::to_string(row) + " values; type " +
                                     std::string(base::name_of(view.dtype)) +
                                     " needs a multiple of " + std::to_string(block));
  }
  const std::optional<std::uint64_t> bytes = stored_bytes(view.dtype, view.shape);
  if (!bytes) return bad_tensor(view.name, "has dimensions whose size overflows 63 bits");
  if (description.offset > data.size() || *bytes > data.size() - description.offset) {
    return bad_tensor(view.name, "has " + std::to_string(*bytes) + " bytes at offset " +
                                     std::to_string(description.offset) + " of a data section of " +
                                     std::to_string(data.size()) +
                                     " bytes; the file is truncated or damaged: fetch it again");
  }
  return data.subspan(description.offset, *bytes);
}

absl::Status GgufParser::check_no_overlap(std::vector<Description> descriptions) const {
  std::sort(descriptions.begin(), descriptions.end(),
            [](const Description& a, const Description& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < descriptions.size(); ++i) {
    const Description& before = descriptions[i - 1];
    const Description& after = descriptions[i];
    if (after.offset - before.offset < before.view.bytes.size()) {
      return bad_tensor(after.view.name,
                        "overlaps the data of tensor " + in_quotes(before.view.name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorView>> GgufParser::place(std::vector<Description> descriptions,
                                                          std::uint64_t alignment) const {
  const std::uint64_t start = (cursor_.position() + alignment - 1) / alignment * alignment;
  // Only a file without tensors may end before its data section.
  const auto data = file_.subspan(std::min<std::uint64_t>(start, file_.size()));
  for (Description& description : descriptions) {
    if (description.offset % alignment != 0) {
      return bad_tensor(description.view.name, "has offset " + std::to_string(description.offset) +
                                                   ", which is not a multiple of the alignment " +
                                                   std::to_string(alignment));
    }
    HS_ASSIGN_OR_RETURN(description.view.bytes, bytes_of(description, data));
  }
  HS_RETURN_IF_ERROR(check_no_overlap(descriptions));
  std::vector<TensorView> views;
  views.reserve(descriptions.size());
  for (Description& description : descriptions) views.push_back(std::move(description.view));
  return views;
}

}  // namespace

bool has_gguf_magic(std::span<const std::byte> file) {
  return file.size() >= kMagic.size() &&
         std::string_view(reinterpret_cast<const char*>(file.data()), kMagic.size()) == kMagic;
}

absl::StatusOr<GgufContents> parse_gguf(std::span<const std::byte> file,
                                        std::string_view file_name) {
  return GgufParser(file, file_name).parse();
}

}  // namespace hisparse::format
