// Pages between tiers, against what memory and the file itself give in the same iteration: host
// copies against memcpy, disk reads (with their checksums) against plain reads of a file of the
// same size. `share%` is the time of the plain ones as a part of ours.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "base/check.h"
#include "tests/bench/harness.h"
#include "transfer/aligned_buffer.h"
#include "transfer/disk_pool.h"
#include "transfer/page_copier.h"

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

void add_disk(const Page& page, bool layers) {
  const std::string name = std::string(layers ? "disk_layers/" : "disk_pages/") + page.name;
  add_case(name, [&page, layers](benchmark::State& state) {
    constexpr int kPieces = 64;
    const std::int32_t slots = slots_of(page);
    auto pool = transfer::DiskPool::create(
        {.folder = std::filesystem::temp_directory_path(), .kept_as = {}}, slots, page.shape);
    HS_CHECK(pool.ok());
    const transfer::DiskPool& disk = **pool;
    AlignedBuffer written(static_cast<std::size_t>(disk.file_page_bytes()));
    for (std::int32_t slot = 0; slot < slots; ++slot) {
      HS_CHECK((*pool)->write(SlotId(slot), 1, written.bytes()).ok());
    }
    const PlainFile file(slots * disk.file_page_bytes(), disk.file().unbuffered());
    const std::int64_t piece = layers ? disk.slice_bytes() : disk.file_page_bytes();
    std::vector<double> ours, plain;
    int next = 0;
    for (auto _ : state) {
      ours.push_back(seconds_of([&] {
        read_all(kPieces, piece, [&](int i, std::span<std::byte> to) {
          const SlotId slot((next + i) % slots);
          HS_CHECK((layers ? disk.read_layer(slot, 0, to) : disk.read(slot, to)).ok());
        });
      }));
      plain.push_back(seconds_of([&] {
        read_all(kPieces, piece, [&](int i, std::span<std::byte> to) {
          file.read(to, (next + i) % slots * disk.file_page_bytes());
        });
      }));
      next = (next + kPieces) % slots;
    }
    set_counters(state, static_cast<double>(kPieces * piece), ours, plain);
    state.SetLabel(disk.file().unbuffered() ? "unbuffered" : "through the page cache");
  });
}

void register_transfers(Machine& machine) {
  for (const Page& page : kPages) add_host(machine, page);
  for (const Page& page : kPages) add_disk(page, false);
  for (const Page& page : kPages) add_disk(page, true);
}

}  // namespace
}  // namespace hisparse::bench

int main(int argc, char** argv) {
  return hisparse::bench::run_benchmarks(argc, argv, hisparse::bench::register_transfers);
}
