// The folder of pages that outlive the process: one file of pages for each rank, and the manifest
// that says what they hold.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kv/persisted_page.h"
#include "transfer/disk_pool.h"
#include "transfer/manifest_format.h"

namespace hisparse::transfer {

// Owns the manifest and the lock on the folder. The manifest is a journal: before a slot is written
// it is forgotten, and listed again once every rank has written it, so whenever the process dies
// what is listed is what the files hold. (After a power failure it may not be; then the seals of
// the slices tell.)
class PageStore final {
 public:
  // Whose pages they are.
  struct Identity {
    std::string model_digest;  // weights and metadata
    std::string numerics;      // numerics version, dtypes, ISA level, tensor-parallel size
    std::int32_t page_tokens = 0;
  };

  // NotFound or PermissionDenied for the folder; Unavailable while another process uses it.
  static absl::StatusOr<std::unique_ptr<PageStore>> open(const std::string& folder);
  ~PageStore();
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // Name of a rank's file of pages in the folder.
  static std::string file_name(std::int32_t rank);

  // The pages that the files hold, oldest first; what cannot be used is left out and the reason
  // logged. The ranks' pools adopt them. Once, before anything else. Unavailable when the folder
  // cannot be written.
  absl::StatusOr<std::vector<kv::PersistedPage>> load(const Identity& identity,
                                                      const std::vector<DiskPool*>& ranks);

  // Numbers of writes of this process lie above it, those of earlier ones below.
  std::int64_t first_write() const;

  // "The slot will be written", "the slot holds this page". Any thread. Where the manifest cannot
  // be written the page is not kept; that is logged once, until it can be again.
  void forget(base::SlotId slot);
  void keep(const kv::PersistedPage& page);

  std::int64_t listed_pages() const;  // any thread

 private:
  explicit PageStore(std::string folder, int lock) : folder_(std::move(folder)), lock_(lock) {}
  std::string path() const;
  absl::StatusOr<ManifestContent> read(const Identity& identity,
                                       const std::vector<DiskPool*>& ranks) const;
  absl::Status rewrite(const std::vector<kv::PersistedPage>& pages);
  void remove_files_from(std::int32_t rank) const;
  bool append(const std::string& record);
  void compact();

  const std::string folder_;
  const int lock_;  // descriptor of the folder
  mutable std::mutex mutex_;
  ManifestHeader header_;     // after load()
  int manifest_ = -1;         // descriptor; guarded by mutex_, as all below
  std::int64_t bytes_ = 0;    // of the manifest
  std::int64_t records_ = 0;  // in it
  std::vector<bool> listed_;  // [slot]
  std::int64_t listed_pages_ = 0;
  bool told_ = false;    // that it cannot be written
  bool failed_ = false;  // nothing more can be written to it
};

}  // namespace hisparse::transfer
