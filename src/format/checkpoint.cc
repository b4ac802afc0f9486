#include "format/checkpoint.h"

#include <filesystem>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/status.h"
#include "format/digest.h"
#include "format/gguf.h"
#include "format/hugging_face.h"
#include "format/mapped_file.h"
#include "format/untrusted_text.h"

namespace hisparse::format {
namespace {

// What a reader has found; the views point into the mappings of `files`.
struct Contents {
  CheckpointKind kind;
  std::vector<MappedFile> files;
  Metadata metadata;
  std::vector<TensorView> tensors;
};

class MappedCheckpoint final : public Checkpoint {
 public:
  explicit MappedCheckpoint(Contents contents)
      : contents_(std::move(contents)),
        digest_(checkpoint_digest(contents_.metadata, contents_.tensors)) {
    by_name_.reserve(contents_.tensors.size());
    for (const TensorView& tensor : contents_.tensors) by_name_.emplace(tensor.name, &tensor);
  }

  CheckpointKind kind() const override { return contents_.kind; }
  const Metadata& metadata() const override { return contents_.metadata; }
  const std::vector<TensorView>& tensors() const override { return contents_.tensors; }
  const TensorView* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  void release(const TensorView& tensor) const override { release_pages(tensor.bytes); }
  std::string digest() const override { return digest_; }

 private:
  const Contents contents_;
  const std::string digest_;
  std::unordered_map<std::string_view, const TensorView*> by_name_;  // into contents_.tensors
};

absl::StatusOr<Contents> open_file(const std::string& path) {
  HS_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  if (!has_gguf_magic(file.bytes())) {
    return bad_file(path,
                    "is not a GGUF file; for safetensors, name the folder that holds config.json");
  }
  HS_ASSIGN_OR_RETURN(GgufContents gguf, parse_gguf(file.bytes(), path));
  Contents contents{CheckpointKind::kGguf, {}, std::move(gguf.metadata), std::move(gguf.tensors)};
  contents.files.push_back(std::move(file));
  return contents;
}

absl::StatusOr<Contents> open_folder(const std::string& path) {
  HS_ASSIGN_OR_RETURN(HuggingFaceContents folder, open_hugging_face(path));
  return Contents{CheckpointKind::kHuggingFace, std::move(folder.files), std::move(folder.metadata),
                  std::move(folder.tensors)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
  std::error_code ignored;  // an error here shows again, with its reason, when the file is opened
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  HS_ASSIGN_OR_RETURN(Contents contents, is_folder ? open_folder(path) : open_file(path));
  return std::make_unique<MappedCheckpoint>(std::move(contents));
}

}  // namespace hisparse::format
