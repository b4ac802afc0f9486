#include "engine/page_stream.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "device/attention_segment.h"

namespace hisparse::engine {
namespace {

// Windows begin where both a segment and a page begin.
std::int64_t window_step(std::int32_t page_tokens) {
  return std::lcm<std::int64_t>(device::kSegmentTokens, page_tokens);
}

}  // namespace

std::int64_t PageStream::Shape::pages_per_half() const {
  return std::max(sequences * window_step(page_tokens) / page_tokens, half_bytes / slice_bytes);
}

std::int64_t PageStream::Shape::staging_bytes() const {
  return static_cast<std::int64_t>(kHalves) * pages_per_half() * slice_bytes;
}

PageStream::Shape PageStream::shape_of(const Options& options) {
  return {.sequences = options.sequences,
          .page_tokens = options.layout.page_tokens(),
          .slice_bytes = options.disk->slice_bytes(),
          .half_bytes = options.half_bytes};
}

absl::StatusOr<std::unique_ptr<PageStream>> PageStream::create(const Options& options) {
  std::unique_ptr<PageStream> stream(new PageStream(options));
  const auto bytes = static_cast<std::size_t>(shape_of(options).staging_bytes());
  HS_ASSIGN_OR_RETURN(stream->staging_,
                      options.device->allocate_host(bytes, base::MemoryOwner::kStaging));
  HS_ASSIGN_OR_RETURN(stream->readers_,
                      transfer::make_slice_readers(*options.disk, options.disk_io));
  for (const std::unique_ptr<transfer::SliceReader>& reader : stream->readers_) {
    stream->threads_.emplace_back(
        [raw = stream.get(), own = reader.get()] { raw->run_reader(*own); });
  }
  return stream;
}

PageStream::PageStream(const Options& options)
    : options_(options), capacity_(shape_of(options).pages_per_half()) {}

PageStream::~PageStream() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PageStream::begin(std::vector<SpilledPage> pages) {
  std::ranges::sort(pages, [](const SpilledPage& a, const SpilledPage& b) {
    return std::pair(a.page, a.sequence_slot) < std::pair(b.page, b.sequence_slot);
  });
  cut_windows(pages);
  current_ = -1;
  start_reading(0);
}

// As long as they can be.
void PageStream::cut_windows(const std::vector<SpilledPage>& pages) {
  const std::int64_t step = window_step(options_.layout.page_tokens());
  const std::int64_t step_pages = step / options_.layout.page_tokens();
  windows_.assign(1, Window{});
  std::map<base::SlotId, std::size_t> reads;
  for (std::size_t begin = 0; begin < pages.size();) {
    const std::int64_t first = pages[begin].page / step_pages;
    std::size_t end = begin;
    while (end < pages.size() && pages[end].page / step_pages == first) ++end;
    if (windows_.back().pages.size() + end - begin > static_cast<std::size_t>(capacity_)) {
      const std::int64_t border = first * step / device::kSegmentTokens;
      windows_.back().segments.end = border;
      windows_.push_back({.segments = {.first = border, .end = device::kAllSegments, .state = {}},
                          .pages = {},
                          .reads = {},
                          .slots = {}});
      reads.clear();
    }
    Window& window = windows_.back();
    for (; begin < end; ++begin) {
      const auto [found, fresh] = reads.try_emplace(pages[begin].slot, window.slots.size());
      if (fresh) window.slots.push_back(pages[begin].slot);
      window.pages.push_back(pages[begin]);
      window.reads.push_back(found->second);
    }
  }
}

std::int64_t PageStream::slice_offset(std::size_t half, std::size_t read) const {
  return (static_cast<std::int64_t>(half) * capacity_ + static_cast<std::int64_t>(read)) *
         options_.disk->slice_bytes();
}

void PageStream::start_reading(std::int64_t job) {
  if (job >= job_count()) return;
  const auto windows = static_cast<std::int64_t>(windows_.size());
  const auto half = static_cast<std::size_t>(job) % kHalves;
  // The device may still read what lies there.
  (void)options_.device->synchronize(halves_[half].used);
  const Window& window = windows_[static_cast<std::size_t>(job % windows)];
  {
    std::lock_guard lock(mutex_);
    job_ = {.window = &window,
            .layer = static_cast<std::int32_t>(job / windows),
            .half = half,
            .next = 0,
            .left = window.slots.size()};
  }
  totals_.bytes += static_cast<std::int64_t>(window.slots.size()) * options_.disk->slice_bytes();
  work_.notify_all();
}

void PageStream::wait_for_readers() {
  const base::SteadyClock clock;
  const base::Nanoseconds since = clock.now();
  std::unique_lock lock(mutex_);
  read_.wait(lock, [this] { return job_.left == 0; });
  totals_.wait += clock.now() - since;
}

void PageStream::run_reader(transfer::SliceReader& reader) {
  const auto has_work = [this] {
    return job_.window != nullptr && job_.next < job_.window->slots.size();
  };
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || has_work(); });
    if (stopping_) return;
    const std::vector<transfer::SliceRead> reads = take_reads(reader.depth());
    lock.unlock();
    reader.read(reads, [this](const transfer::SliceRead& read, const absl::Status& status) {
      note_read(read, status);
    });
    lock.lock();
  }
}

// Holds mutex_. A fair share of what is left, so that no reader waits while another has a queue.
std::vector<transfer::SliceRead> PageStream::take_reads(std::size_t most) {
  const std::size_t left = job_.window->slots.size() - job_.next;
  const std::size_t share = (left + readers_.size() - 1) / readers_.size();
  std::vector<transfer::SliceRead> reads;
  for (std::size_t count = std::min(most, share); count > 0; --count) {
    const std::size_t read = job_.next++;
    reads.push_back({.slot = job_.window->slots[read],
                     .layer = job_.layer,
                     .slice = staging_.bytes().subspan(
                         static_cast<std::size_t>(slice_offset(job_.half, read)),
                         static_cast<std::size_t>(options_.disk->slice_bytes()))});
  }
  return reads;
}

void PageStream::note_read(const transfer::SliceRead& read, const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (!status.ok() && std::ranges::find(bad_, read.slot) == bad_.end()) {
    spdlog::error("a KV page is lost and will be computed again: {}", status.ToString());
    bad_.push_back(read.slot);
  }
  if (--job_.left == 0) read_.notify_all();
}

// A table entry is where the page would begin if this layer's slice were inside it.
void PageStream::point_table_at(const Window& window, std::int32_t layer, Half& half,
                                device::Stream& stream) {
  const auto index = static_cast<std::size_t>(&half - halves_.data());
  half.addresses.clear();
  half.addresses.reserve(window.pages.size());
  for (std::size_t i = 0; i < window.pages.size(); ++i) {
    half.addresses.push_back((staging_.on_device() + (slice_offset(index, window.reads[i]) -
                                                      options_.layout.offset(layer, 0)))
                                 .address());
    const std::int64_t entry =
        window.pages[i].sequence_slot * options_.pages_per_sequence + window.pages[i].page;
    options_.device->copy_to_device(
        std::as_bytes(std::span(&half.addresses.back(), 1)),
        device::DevicePtr<std::byte>((options_.block_table + entry).address()), stream);
  }
}

device::SegmentWindow PageStream::enter(std::int32_t layer, std::int32_t window,
                                        device::Stream& stream) {
  ++current_;
  HS_CHECK(current_ == std::int64_t{layer} * count() + window);
  wait_for_readers();
  start_reading(current_ + 1);
  const Window& entered = windows_[static_cast<std::size_t>(window)];
  point_table_at(entered, layer, halves_[static_cast<std::size_t>(current_) % kHalves], stream);
  return entered.segments;
}

void PageStream::leave(device::Stream& stream) {
  halves_[static_cast<std::size_t>(current_) % kHalves].used = options_.device->record(stream);
}

std::vector<base::SlotId> PageStream::finish() {
  wait_for_readers();
  std::lock_guard lock(mutex_);
  job_ = {};
  return std::exchange(bad_, {});
}

}  // namespace hisparse::engine
