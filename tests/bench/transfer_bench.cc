// Pages between tiers, against what memory and the file itself give in the same iteration: host
// copies against memcpy, disk reads (with their checksums) against plain reads of a file of the
// same size. `share%` is the time of the plain ones as a part of ours.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/check.h"
#include "tests/bench/harness.h"
#include "transfer/aligned_buffer.h"
#include "transfer/disk_pool.h"
#include "transfer/page_copier.h"
#include "transfer/slice_reader.h"

namespace hisparse::bench {
namespace {

using base::SlotId;
using kv::Location;
using kv::Tier;
using transfer::AlignedBuffer;
using transfer::PageShape;

struct Page {
  const char* name;
  PageShape shape;
};
// One layer of 64 KB; SmolLM2's page of 64 tokens; the same of 16 tokens.
constexpr Page kPages[] = {{"64KB", {.layers = 1, .layer_bytes = 64 << 10}},
                           {"smollm2_64_tokens", {.layers = 30, .layer_bytes = 64 * 768}},
                           {"smollm2_16_tokens", {.layers = 30, .layer_bytes = 16 * 768}}};
constexpr std::int64_t kPoolBytes = std::int64_t{256} << 20;
constexpr int kReaders = 4;
constexpr int kPieces = 64;  // read in an iteration

std::int32_t slots_of(const Page& page) {
  return static_cast<std::int32_t>(kPoolBytes / page.shape.bytes());
}

void set_counters(benchmark::State& state, double bytes, std::vector<double> ours,
                  std::vector<double> plain) {
  constexpr double kGiga = 1e9;
  constexpr double kPercent = 100.0;
  const double seconds = median(std::move(ours));
  const double plain_seconds = median(std::move(plain));
  state.counters["GB/s"] = bytes / seconds / kGiga;
  state.counters["plain_GB/s"] = bytes / plain_seconds / kGiga;
  state.counters["share%"] = kPercent * plain_seconds / seconds;
}

// Eight pages of a pool that does not fit into the caches.
void add_host(Machine& machine, const Page& page) {
  add_case(std::string("host/") + page.name, [&machine, &page](benchmark::State& state) {
    constexpr int kCopied = 8;
    const std::int32_t slots = slots_of(page);
    const auto bytes = static_cast<std::size_t>(page.shape.bytes());
    const device::Buffer slab = machine.allocate(slots * page.shape.bytes());
    auto host = machine.device->allocate_host(static_cast<std::size_t>(slots) * bytes,
                                              base::MemoryOwner::kKvHost);
    HS_CHECK(host.ok());
    auto copier = transfer::PageCopier::create({.device = machine.device.get(),
                                                .page = page.shape,
                                                .slab = slab.as<std::byte>(),
                                                .host = host->on_device(),
                                                .disk = nullptr});
    HS_CHECK(copier.ok());
    // In memory of the same kind.
    auto from = machine.device->allocate_host(host->bytes().size(), base::MemoryOwner::kKvHost);
    auto to = machine.device->allocate_host(host->bytes().size(), base::MemoryOwner::kKvHost);
    HS_CHECK(from.ok() && to.ok());
    machine.device->fill(slab.as<std::byte>(), std::byte{3}, slab.bytes(), *machine.stream);
    for (std::int32_t slot = 0; slot < slots; ++slot) {  // pages are touched
      HS_CHECK(
          (*copier)->copy({Tier::kResident, SlotId(slot)}, {Tier::kHost, SlotId(slot)}, 1).ok());
    }
    std::memset(from->bytes().data(), 1, from->bytes().size());
    std::memset(to->bytes().data(), 2, to->bytes().size());
    std::vector<double> ours, plain;
    std::int32_t next = 0;
    for (auto _ : state) {
      ours.push_back(seconds_of([&] {
        for (int i = 0; i < kCopied; ++i) {
          const SlotId slot((next + i) % slots);
          HS_CHECK((*copier)->copy({Tier::kResident, slot}, {Tier::kHost, slot}, 1).ok());
        }
      }));
      plain.push_back(seconds_of([&] {
        for (int i = 0; i < kCopied; ++i) {
          const auto at = static_cast<std::size_t>((next + i) % slots) * bytes;
          std::memcpy(to->bytes().data() + at, from->bytes().data() + at, bytes);
        }
      }));
      next = (next + kCopied) % slots;
    }
    benchmark::DoNotOptimize(to->bytes().data());
    set_counters(state, static_cast<double>(kCopied) * static_cast<double>(bytes), ours, plain);
  });
}

// A file like the pool's, read without seals.
class PlainFile final {
 public:
  PlainFile(std::int64_t bytes, bool unbuffered) {
    std::string name = std::filesystem::temp_directory_path() / "hisparse-bench-XXXXXX";
    const int named = ::mkstemp(name.data());
    HS_CHECK(named >= 0 && ::posix_fallocate(named, 0, bytes) == 0);
    const std::vector<char> block(1 << 20, 'x');
    for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(block.size())) {
      HS_CHECK(::pwrite(named, block.data(), block.size(), at) > 0);
    }
    HS_CHECK(::fsync(named) == 0);
    file_ = ::open(name.c_str(), unbuffered ? O_RDONLY | O_DIRECT : O_RDONLY);
    ::unlink(name.c_str());
    ::close(named);
    HS_CHECK(file_ >= 0);
  }
  ~PlainFile() { ::close(file_); }
  void read(std::span<std::byte> to, std::int64_t at) const {
    HS_CHECK(::pread(file_, to.data(), to.size(), at) == static_cast<ssize_t>(to.size()));
  }

 private:
  int file_ = -1;
};

// Reads `count` pieces on kReaders threads, as a step does.
template <typename Read>
void read_all(int count, std::int64_t piece_bytes, const Read& read) {
  std::atomic<int> next{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      const AlignedBuffer buffer(static_cast<std::size_t>(piece_bytes));
      for (int piece = next++; piece < count; piece = next++) read(piece, buffer.bytes());
    });
  }
  for (std::thread& reader : readers) reader.join();
}

// A pool whose every slot is written.
std::unique_ptr<transfer::DiskPool> written_pool(const Page& page, std::int32_t slots) {
  auto pool = transfer::DiskPool::create(
      {.folder = std::filesystem::temp_directory_path(), .kept_as = {}}, slots, page.shape);
  HS_CHECK(pool.ok());
  AlignedBuffer written(static_cast<std::size_t>((*pool)->file_page_bytes()));
  for (std::int32_t slot = 0; slot < slots; ++slot) {
    HS_CHECK((*pool)->write(SlotId(slot), 1, written.bytes()).ok());
  }
  return std::move(*pool);
}

// `read(first)` reads kPieces pieces of the pool, from slot `first` on.
template <typename Read>
void compare_with_plain(benchmark::State& state, const transfer::DiskPool& disk,
                        std::int64_t piece_bytes, const Read& read) {
  const std::int32_t slots = disk.slots();
  const PlainFile file(slots * disk.file_page_bytes(), disk.file().unbuffered());
  std::vector<double> ours, plain;
  int next = 0;
  for (auto _ : state) {
    ours.push_back(seconds_of([&] { read(next); }));
    plain.push_back(seconds_of([&] {
      read_all(kPieces, piece_bytes, [&](int i, std::span<std::byte> to) {
        file.read(to, (next + i) % slots * disk.file_page_bytes());
      });
    }));
    next = (next + kPieces) % slots;
  }
  set_counters(state, static_cast<double>(kPieces * piece_bytes), ours, plain);
  state.SetLabel(disk.file().unbuffered() ? "unbuffered" : "through the page cache");
}

void add_disk_pages(const Page& page) {
  add_case(std::string("disk_pages/") + page.name, [&page](benchmark::State& state) {
    const auto disk = written_pool(page, slots_of(page));
    compare_with_plain(state, *disk, disk->file_page_bytes(), [&](int first) {
      read_all(kPieces, disk->file_page_bytes(), [&](int i, std::span<std::byte> to) {
        HS_CHECK(disk->read(SlotId((first + i) % disk->slots()), to).ok());
      });
    });
  });
}

// The first layer of kPieces pages from slot `first` on, each reader on a thread of its own.
void stream_layers(const transfer::DiskPool& disk,
                   const std::vector<std::unique_ptr<transfer::SliceReader>>& readers, int first,
                   const AlignedBuffer& buffer) {
  const auto slice_bytes = static_cast<std::size_t>(disk.slice_bytes());
  const std::size_t share = kPieces / readers.size();
  std::vector<std::thread> threads;
  for (std::size_t reader = 0; reader < readers.size(); ++reader) {
    threads.emplace_back([&, reader] {
      std::vector<transfer::SliceRead> reads;
      for (std::size_t i = reader * share; i < (reader + 1) * share; ++i) {
        reads.push_back({.slot = SlotId((first + static_cast<int>(i)) % disk.slots()),
                         .layer = 0,
                         .slice = buffer.bytes().subspan(i * slice_bytes, slice_bytes)});
      }
      readers[reader]->read(reads, [](const transfer::SliceRead&, const absl::Status& status) {
        HS_CHECK(status.ok());
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void add_disk_layers(const Page& page, base::DiskIo io) {
  const std::string way = io == base::DiskIo::kThreads ? "threads/" : "io_uring/";
  add_case("disk_layers/" + way + page.name, [&page, io](benchmark::State& state) {
    const auto disk = written_pool(page, slots_of(page));
    const auto readers = transfer::make_slice_readers(*disk, io);
    if (!readers.ok()) return state.SkipWithError(readers.status().ToString().c_str());
    const AlignedBuffer buffer(kPieces * static_cast<std::size_t>(disk->slice_bytes()));
    compare_with_plain(state, *disk, disk->slice_bytes(),
                       [&](int first) { stream_layers(*disk, *readers, first, buffer); });
  });
}

void register_transfers(Machine& machine) {
  for (const Page& page : kPages) add_host(machine, page);
  for (const Page& page : kPages) add_disk_pages(page);
  for (const Page& page : kPages) {
    add_disk_layers(page, base::DiskIo::kIoUring);
    add_disk_layers(page, base::DiskIo::kThreads);
  }
}

}  // namespace
}  // namespace hisparse::bench

int main(int argc, char** argv) {
  return hisparse::bench::run_benchmarks(argc, argv, hisparse::bench::register_transfers);
}
