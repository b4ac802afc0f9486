#include "format/hugging_face.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "format/json_metadata.h"
#include "format/json_parse.h"
#include "format/safetensors.h"
#include "format/untrusted_text.h"

namespace hisparse::format {
namespace {

using Json = nlohmann::json;

constexpr const char* kConfigFile = "/config.json";
constexpr const char* kGenerationConfigFile = "/generation_config.json";
constexpr const char* kSingleFile = "/model.safetensors";
constexpr const char* kIndexFile = "/model.safetensors.index.json";
constexpr std::string_view kGenerationConfigPrefix = "generation_config.";
constexpr std::string_view kWeightsSuffix = ".safetensors";

bool is_plain_file_name(std::string_view name) {
  constexpr std::string_view kForbidden("/\\\0", 3);
  return name.size() > kWeightsSuffix.size() && name.ends_with(kWeightsSuffix) &&
         name.find_first_of(kForbidden) == std::string_view::npos &&
         name.find("..") == std::string_view::npos;
}

absl::StatusOr<MetadataMap> read_json_file(const std::string& path, std::string_view key_prefix) {
  HS_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  return parse_json_metadata(file.text(), path, key_prefix);
}

absl::StatusOr<Metadata> read_metadata(const std::string& folder) {
  absl::StatusOr<MetadataMap> values = read_json_file(folder + kConfigFile, "");
  if (absl::IsNotFound(values.status())) {
    return absl::NotFoundError(folder +
                               ": has no config.json; name a Hugging Face model folder or a "
                               ".gguf file");
  }
  HS_RETURN_IF_ERROR(values.status());
  const std::string generation_path = folder + kGenerationConfigFile;
  absl::StatusOr<MetadataMap> generation = read_json_file(generation_path, kGenerationConfigPrefix);
  if (absl::IsNotFound(generation.status())) return Metadata(*std::move(values));
  HS_RETURN_IF_ERROR(generation.status());
  values->merge(*generation);
  // What merge() leaves behind was present already.
  if (!generation->empty()) {
    return bad_file(generation_path, "key " + in_quotes(generation->begin()->first) +
                                         " is also set in config.json; remove one of them");
  }
  return Metadata(*std::move(values));
}

absl::Status add_shard(const std::string& folder, const std::string& shard, WeightMap& expected,
                       HuggingFaceContents& contents) {
  const std::string path = folder + "/" + shard;
  HS_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  HS_ASSIGN_OR_RETURN(std::vector<TensorView> tensors, parse_safetensors(file.bytes(), path));
  for (TensorView& tensor : tensors) {
    const auto mapped = expected.find(tensor.name);
    if (mapped == expected.end() || mapped->second != shard) continue;
    expected.erase(mapped);
    contents.tensors.push_back(std::move(tensor));
  }
  contents.files.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status add_shards(const std::string& folder, WeightMap expected,
                        HuggingFaceContents& contents) {
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : expected) shards.insert(shard);
  for (const std::string& shard : shards) {
    HS_RETURN_IF_ERROR(add_shard(folder, shard, expected, contents));
  }
  if (expected.empty()) return absl::OkStatus();
  const auto& [tensor, shard] = *expected.begin();
  return bad_file(folder + kIndexFile, "maps tensor " + in_quotes(tensor) + " to " +
                                           in_quotes(shard) + ", which does not hold it");
}

absl::Status add_weights(const std::string& folder, HuggingFaceContents& contents) {
  absl::StatusOr<MappedFile> single = MappedFile::open(folder + kSingleFile);
  if (single.ok()) {
    HS_ASSIGN_OR_RETURN(contents.tensors, parse_safetensors(single->bytes(), folder + kSingleFile));
    contents.files.push_back(*std::move(single));
    return absl::OkStatus();
  }
  if (!absl::IsNotFound(single.status())) return single.status();
  const std::string index_path = folder + kIndexFile;
  const absl::StatusOr<MappedFile> index = MappedFile::open(index_path);
  if (absl::IsNotFound(index.status())) {
    return absl::NotFoundError(folder +
                               ": has neither model.safetensors nor model.safetensors.index.json; "
                               "convert weights of other formats to safetensors");
  }
  HS_RETURN_IF_ERROR(index.status());
  HS_ASSIGN_OR_RETURN(WeightMap expected, parse_weight_map(index->text(), index_path));
  return add_shards(folder, std::move(expected), contents);
}

}  // namespace

absl::StatusOr<WeightMap> parse_weight_map(std::string_view text, std::string_view file) {
  HS_ASSIGN_OR_RETURN(const Json document, parse_json_object(text, file, kWeightIndexLimits));
  const auto found = document.find("weight_map");
  if (found == document.end() || !found->is_object() || found->empty()) {
    return bad_file(file, "has no weight_map object with tensors in it");
  }
  WeightMap map;
  for (const auto& [tensor, shard] : found->items()) {
    if (!shard.is_string()) {
      return bad_file(file,
                      "weight_map: tensor " + in_quotes(tensor) + " is not mapped to a string");
    }
    const auto& shard_name = shard.get_ref<const std::string&>();
    if (!is_plain_file_name(shard_name)) {
      return bad_file(file, "weight_map: tensor " + in_quotes(tensor) + " is mapped to " +
                                in_quotes(shard_name) +
                                "; a file name of this folder ending in .safetensors is needed");
    }
    map.emplace(tensor, shard_name);
  }
  return map;
}

absl::StatusOr<Metadata> read_model_config(const std::string& path) {
  std::error_code ignored;  // shows again, with its reason, when the file is opened
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  HS_ASSIGN_OR_RETURN(MetadataMap values,
                      read_json_file(is_folder ? path + kConfigFile : path, ""));
  return Metadata(std::move(values));
}

absl::StatusOr<HuggingFaceContents> open_hugging_face(const std::string& folder) {
  HuggingFaceContents contents;
  HS_ASSIGN_OR_RETURN(contents.metadata, read_metadata(folder));
  HS_RETURN_IF_ERROR(add_weights(folder, contents));
  return contents;
}

}  // namespace hisparse::format
