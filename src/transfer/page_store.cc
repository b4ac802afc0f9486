#include "transfer/page_store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace hisparse::transfer {
namespace {

constexpr const char* kManifestName = "hisparse-kv.manifest";
constexpr mode_t kOnlyOwner = 0600;
// Bits of a write's number that count within a process.
constexpr int kRunShift = 40;
constexpr std::uint64_t kMaxRun = 1u << 22;
// The journal is written anew when it holds this many records for each slot.
constexpr std::int64_t kRecordsPerSlot = 4;
constexpr std::int64_t kMinRecords = 1024;
// More than any manifest: the limit of records, at the largest page.
constexpr std::int64_t kMaxManifestBytes = std::int64_t{16} << 30;

std::string error_text(const std::string& what) {
  return what + ": " + std::error_code(errno, std::generic_category()).message();
}

std::string identity_text(const PageStore::Identity& identity,
                          const std::vector<DiskPool*>& ranks) {
  const PageShape& page = ranks.front()->page();
  return "model " + identity.model_digest + ", numerics " + identity.numerics + ", pages of " +
         std::to_string(identity.page_tokens) + " tokens in " + std::to_string(page.layers) +
         " layers of " + std::to_string(page.layer_bytes) + " bytes on " +
         std::to_string(ranks.size()) + " rank(s)";
}

std::uint64_t new_store() {
  std::random_device random;
  return static_cast<std::uint64_t>(random()) << 32 | random();
}

absl::Status write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::UnavailableError(error_text("the manifest cannot be written"));
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError("there is no manifest");
  if (file.tellg() > kMaxManifestBytes) return absl::DataLossError("the manifest is too large");
  file.seekg(0);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageStore>> PageStore::open(const std::string& folder) {
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0) {
    const std::string text = error_text("--kv-disk-path " + folder);
    return errno == EACCES ? absl::PermissionDeniedError(text) : absl::NotFoundError(text);
  }
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;
    const std::string text = error_text("--kv-disk-path " + folder + " cannot be locked");
    ::close(lock);
    if (!taken) return absl::UnavailableError(text);
    return absl::UnavailableError("--kv-disk-path " + folder +
                                  " keeps the pages of another running process: give each its own "
                                  "folder");
  }
  return std::unique_ptr<PageStore>(new PageStore(folder, lock));
}

PageStore::~PageStore() {
  if (manifest_ >= 0) {
    (void)::fdatasync(manifest_);
    ::close(manifest_);
  }
  ::close(lock_);
}

std::string PageStore::file_name(std::int32_t rank) {
  return "hisparse-kv-" + std::to_string(rank) + ".pages";
}

std::string PageStore::path() const { return folder_ + "/" + kManifestName; }

std::int64_t PageStore::first_write() const {
  return static_cast<std::int64_t>(header_.run << kRunShift);
}

std::int64_t PageStore::listed_pages() const {
  std::lock_guard lock(mutex_);
  return listed_pages_;
}

// What earlier processes left, if it is of use.
absl::StatusOr<ManifestContent> PageStore::read(const Identity& identity,
                                                const std::vector<DiskPool*>& ranks) const {
  HS_ASSIGN_OR_RETURN(const std::string bytes, read_all(path()));
  HS_ASSIGN_OR_RETURN(ManifestContent content, decode_manifest(bytes, ranks.front()->slots()));
  const std::string ours = identity_text(identity, ranks);
  if (content.header.identity != ours) {
    return absl::FailedPreconditionError("they belong to " + content.header.identity +
                                         ", and this process serves " + ours);
  }
  if (content.header.page_tokens != identity.page_tokens) {
    return absl::DataLossError("the manifest contradicts itself");
  }
  if (content.header.run >= kMaxRun) {
    return absl::FailedPreconditionError("too many processes have written to them");
  }
  for (const DiskPool* rank : ranks) {
    if (rank->store() != content.header.store) {
      return absl::DataLossError("a file of pages does not belong to the manifest");
    }
  }
  return content;
}

absl::StatusOr<std::vector<kv::PersistedPage>> PageStore::load(
    const Identity& identity, const std::vector<DiskPool*>& ranks) {
  HS_CHECK(!ranks.empty() && manifest_ < 0);
  absl::StatusOr<ManifestContent> found = read(identity, ranks);
  ManifestContent content;
  if (found.ok()) {
    content = std::move(*found);
    spdlog::info("KV pages on disk: {} kept from earlier", content.pages.size());
    if (content.bad_records > 0 || content.torn_bytes > 0) {
      spdlog::warn(
          "the manifest of the KV pages has {} bad records and {} bytes of a torn one, "
          "which are ignored",
          content.bad_records, content.torn_bytes);
    }
    if (content.missing_slots > 0) {
      spdlog::warn("{} more do not fit into --kv-disk-space any more and are gone",
                   content.missing_slots);
    }
  } else if (absl::IsNotFound(found.status())) {
    spdlog::info("KV pages on disk: none kept from earlier");
  } else {
    spdlog::warn("the KV pages in {} are ignored and will be overwritten: {}", folder_,
                 std::string(found.status().message()));
  }
  header_ = {.store = found.ok() ? content.header.store : new_store(),
             .run = content.header.run + 1,
             .page_tokens = identity.page_tokens,
             .identity = identity_text(identity, ranks)};
  listed_.assign(static_cast<std::size_t>(ranks.front()->slots()), false);
  remove_files_from(static_cast<std::int32_t>(ranks.size()));
  // First the manifest: without it the heads of the files name a store that nothing knows.
  HS_RETURN_IF_ERROR(rewrite(content.pages));
  for (DiskPool* rank : ranks) {
    HS_RETURN_IF_ERROR(rank->begin_store(header_.store));
    for (const kv::PersistedPage& page : content.pages) rank->adopt(page.slot, page.write);
  }
  return std::move(content.pages);
}

// Of a process with more ranks: they would take room that nobody counts.
void PageStore::remove_files_from(std::int32_t rank) const {
  while (::unlink((folder_ + "/" + file_name(rank)).c_str()) == 0) ++rank;
}

// In one step: a process that dies meanwhile leaves the old manifest or the new one.
absl::Status PageStore::rewrite(const std::vector<kv::PersistedPage>& pages) {
  const std::string fresh = path() + ".new";
  const int file =
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kOnlyOwner);
  if (file < 0) return absl::UnavailableError(error_text(fresh + " cannot be written"));
  std::string bytes = encode_header(header_);
  for (const kv::PersistedPage& page : pages) bytes += encode_kept(header_, page);
  absl::Status status = write_all(file, bytes);
  if (status.ok() && (::fdatasync(file) != 0 || ::rename(fresh.c_str(), path().c_str()) != 0 ||
                      ::fsync(lock_) != 0)) {
    status = absl::UnavailableError(error_text(path() + " cannot be written"));
  }
  if (!status.ok()) {
    ::close(file);
    return status;
  }
  if (manifest_ >= 0) ::close(manifest_);
  manifest_ = file;
  bytes_ = static_cast<std::int64_t>(bytes.size());
  records_ = static_cast<std::int64_t>(pages.size());
  std::fill(listed_.begin(), listed_.end(), false);
  for (const kv::PersistedPage& page : pages) {
    listed_[static_cast<std::size_t>(page.slot.value())] = true;
  }
  listed_pages_ = records_;
  return absl::OkStatus();
}

void PageStore::forget(base::SlotId slot) {
  std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(slot.value());
  if (!listed_[at] || !append(encode_forgotten(header_, slot))) return;
  listed_[at] = false;
  --listed_pages_;
}

void PageStore::keep(const kv::PersistedPage& page) {
  std::lock_guard lock(mutex_);
  if (!append(encode_kept(header_, page))) return;
  const auto at = static_cast<std::size_t>(page.slot.value());
  if (!listed_[at]) ++listed_pages_;
  listed_[at] = true;
  if (records_ >= kMinRecords + kRecordsPerSlot * static_cast<std::int64_t>(listed_.size())) {
    compact();
  }
}

bool PageStore::append(const std::string& record) {
  if (failed_) return false;
  const absl::Status status = write_all(manifest_, record);
  if (status.ok()) {
    bytes_ += static_cast<std::int64_t>(record.size());
    ++records_;
    told_ = false;
    return true;
  }
  // Half a record would spoil those behind it.
  failed_ = ::ftruncate(manifest_, bytes_) != 0 || ::lseek(manifest_, bytes_, SEEK_SET) < 0;
  if (!std::exchange(told_, true)) {
    spdlog::error("KV pages are not kept for the next start{}: {}",
                  failed_ ? "" : " until the manifest can be written",
                  std::string(status.message()));
  }
  return false;
}

void PageStore::compact() {
  absl::StatusOr<std::string> bytes = read_all(path());
  absl::Status status = bytes.status();
  if (status.ok()) {
    absl::StatusOr<ManifestContent> content =
        decode_manifest(*bytes, static_cast<std::int32_t>(listed_.size()));
    status = content.ok() ? rewrite(content->pages) : content.status();
  }
  if (status.ok()) return;
  failed_ = true;
  spdlog::error("no further KV pages are kept for the next start: {}",
                std::string(status.message()));
}

}  // namespace hisparse::transfer
