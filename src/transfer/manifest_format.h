// The bytes of the manifest of a folder of kept pages. Pure; the file may be torn, foreign or
// hostile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kv/persisted_page.h"

namespace hisparse::transfer {

// What stands in front. `store` ties the manifest to the page files, `run` counts the processes
// that wrote to them, and `identity` says in words whose pages they are: pages of another identity
// are of no use.
struct ManifestHeader {
  std::uint64_t store = 0;
  std::uint64_t run = 0;
  std::int32_t page_tokens = 0;
  std::string identity;
};

struct ManifestContent {
  ManifestHeader header;
  std::vector<kv::PersistedPage> pages;  // that are listed in the end, oldest first
  std::int64_t bad_records = 0;          // whose checksum or values are wrong: skipped
  std::int64_t missing_slots = 0;        // pages in slots that there are no more
  std::int64_t torn_bytes = 0;           // behind the last whole record
};

// A header, and behind it one record of fixed size for each change, in order: "this slot holds this
// page", "this slot holds nothing". Each is sealed by a checksum of its own, in which the store is.
std::string encode_header(const ManifestHeader& header);
std::string encode_kept(const ManifestHeader& header, const kv::PersistedPage& page);
std::string encode_forgotten(const ManifestHeader& header, base::SlotId slot);

// DataLoss when there is no whole header of this version. Slots are below `slots`.
absl::StatusOr<ManifestContent> decode_manifest(std::string_view bytes, std::int32_t slots);

}  // namespace hisparse::transfer
