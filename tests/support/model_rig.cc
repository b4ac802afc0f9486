#include "tests/support/model_rig.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <span>
#include <thread>

#include "base/check.h"
#include "engine/dense_pages.h"

namespace hisparse::test {
namespace {

template <typename T>
T value_or_die(absl::StatusOr<T> result) {
  if (!result.ok()) std::cerr << result.status() << std::endl;
  HS_CHECK(result.ok());
  return std::move(*result);
}

}  // namespace

// Destroyed in reverse order: the device last.
struct ModelRig::Rank {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<comm::Communicator> communicator;
  std::unique_ptr<model::RankModel> model;
  std::unique_ptr<kv::PageLayout> layout;
  std::unique_ptr<device::Stream> stream;
  device::Buffer slab, table, tokens, slots, positions, logit_rows;
  std::int64_t pages_per_sequence = 0;

  template <typename T>
  void upload(const std::vector<T>& host, const device::Buffer& target) {
    HS_CHECK(host.size() * sizeof(T) <= target.bytes());
    device->copy_to_device(std::as_bytes(std::span(host)), target.as<std::byte>(), *stream);
  }
  device::Buffer allocate(std::int64_t bytes) {
    return value_or_die(
        device->allocate(static_cast<std::size_t>(bytes), base::MemoryOwner::kStaging));
  }
  void build_table(const RigOptions& options);
};

void ModelRig::Rank::build_table(const RigOptions& options) {
  const std::int64_t pages = pages_per_sequence * options.sequences;
  std::vector<std::uint64_t> addresses;
  for (std::int64_t page = 0; page < pages; ++page) {
    addresses.push_back((slab.as<std::byte>() + page * layout->page_bytes()).address());
  }
  if (options.page_order_seed != 0) {
    std::mt19937_64 random(options.page_order_seed);
    std::shuffle(addresses.begin(), addresses.end(), random);
  }
  upload(addresses, table);
  HS_CHECK(device->synchronize(device->record(*stream)).ok());
}

ModelRig::ModelRig(const std::string& path, const RigOptions& options)
    : options_(options), pool_(options.threads) {
  const auto checkpoint = value_or_die(format::Checkpoint::open(path));
  spec_ = value_or_die(model::read_model_spec(*checkpoint));
  std::vector<device::Device*> devices;
  for (std::int32_t r = 0; r < options.ranks; ++r) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->device = value_or_die(device::make_cpu_device(pool_, options.device));
    devices.push_back(ranks_.back()->device.get());
  }
  auto communicators = comm::make_thread_communicators(devices);
  const model::ModelOptions model_options = {.compute = options.compute,
                                             .kv_dtype = options.kv_dtype,
                                             .max_rows = options.max_rows,
                                             .max_logit_rows = options.max_rows};
  for (std::int32_t r = 0; r < options.ranks; ++r) {
    Rank& rank = *ranks_[static_cast<std::size_t>(r)];
    const model::Shard shard = value_or_die(model::make_shard(spec_, r, options.ranks));
    rank.communicator = options.ranks == 1 ? comm::make_solo_communicator()
                                           : std::move(communicators[static_cast<std::size_t>(r)]);
    rank.model = value_or_die(model::RankModel::load(
        *checkpoint, spec_, model_options,
        {.device = rank.device.get(), .communicator = rank.communicator.get(), .shard = shard},
        {}));
    rank.layout = std::make_unique<kv::PageLayout>(
        engine::dense_cache_group(spec_, shard, options.kv_dtype), options.page_tokens);
    rank.stream = rank.device->create_stream();
    rank.pages_per_sequence = (options.max_tokens + options.page_tokens - 1) / options.page_tokens;
    const std::int64_t pages = rank.pages_per_sequence * options.sequences;
    rank.slab = rank.allocate(pages * rank.layout->page_bytes());
    rank.table = rank.allocate(pages * static_cast<std::int64_t>(sizeof(std::uint64_t)));
    rank.tokens = rank.allocate(options.max_rows * 4);
    rank.slots = rank.allocate(options.max_rows * 4);
    rank.positions = rank.allocate(options.max_rows * 8);
    rank.logit_rows = rank.allocate(options.max_rows * 4);
    rank.build_table(options);
  }
}

ModelRig::~ModelRig() = default;

void ModelRig::run_rank(Rank& rank, const std::vector<RigRow>& rows, std::vector<Logits>& logits) {
  std::vector<base::TokenId> tokens;
  std::vector<std::int32_t> slots, logit_rows;
  std::vector<std::int64_t> positions;
  for (const RigRow& row : rows) {
    if (row.wants_logits) logit_rows.push_back(static_cast<std::int32_t>(tokens.size()));
    tokens.push_back(row.token);
    slots.push_back(row.sequence);
    positions.push_back(row.position);
  }
  rank.upload(tokens, rank.tokens);
  rank.upload(slots, rank.slots);
  rank.upload(positions, rank.positions);
  rank.upload(logit_rows, rank.logit_rows);
  rank.model->forward({.tokens = rank.tokens.as<const base::TokenId>(),
                       .placement = {.sequence_slots = rank.slots.as<const std::int32_t>(),
                                     .positions = rank.positions.as<const std::int64_t>(),
                                     .rows = static_cast<std::int64_t>(rows.size())},
                       .logit_rows = rank.logit_rows.as<const std::int32_t>(),
                       .logit_count = static_cast<std::int64_t>(logit_rows.size()),
                       .page_addresses = rank.table.as<const std::uint64_t>(),
                       .pages_per_sequence = rank.pages_per_sequence},
                      engine::page_geometry(*rank.layout, spec_.layers), *rank.stream);
  const auto vocabulary = static_cast<std::size_t>(spec_.vocabulary);
  std::vector<float> flat(logit_rows.size() * vocabulary);
  if (!flat.empty()) {
    rank.device->copy_to_host(device::DevicePtr<const std::byte>(rank.model->logits().address()),
                              std::as_writable_bytes(std::span(flat)), *rank.stream);
  }
  HS_CHECK(rank.device->synchronize(rank.device->record(*rank.stream)).ok());
  logits.clear();
  for (std::size_t i = 0; i < logit_rows.size(); ++i) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(i * vocabulary);
    logits.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(vocabulary));
  }
}

std::vector<Logits> ModelRig::run(const std::vector<RigRow>& rows) {
  std::vector<std::vector<Logits>> by_rank(ranks_.size());
  if (ranks_.size() == 1) {
    run_rank(*ranks_.front(), rows, by_rank.front());
    return std::move(by_rank.front());
  }
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    threads.emplace_back([&, r] { run_rank(*ranks_[r], rows, by_rank[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  // Replicated results must be the same bits on every rank.
  for (const std::vector<Logits>& other : by_rank) HS_CHECK(other == by_rank.front());
  return by_rank.front();
}

Logits ModelRig::prefill(std::int32_t sequence, std::int64_t first,
                         const std::vector<base::TokenId>& tokens) {
  std::vector<RigRow> rows;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    rows.push_back(
        {sequence, first + static_cast<std::int64_t>(i), tokens[i], i + 1 == tokens.size()});
  }
  return run(rows).front();
}

std::vector<Logits> ModelRig::prefill_all(std::int32_t sequence,
                                          const std::vector<base::TokenId>& tokens) {
  std::vector<RigRow> rows;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    rows.push_back({sequence, static_cast<std::int64_t>(i), tokens[i], true});
  }
  return run(rows);
}

std::vector<std::byte> ModelRig::read_page(std::int32_t rank, std::int32_t sequence,
                                           std::int64_t page) {
  HS_CHECK(options_.page_order_seed == 0);
  Rank& from = *ranks_[static_cast<std::size_t>(rank)];
  HS_CHECK(page < from.pages_per_sequence);
  std::vector<std::byte> bytes(static_cast<std::size_t>(from.layout->page_bytes()));
  const std::int64_t at = (sequence * from.pages_per_sequence + page) * from.layout->page_bytes();
  from.device->copy_to_host(
      device::DevicePtr<const std::byte>((from.slab.as<std::byte>() + at).address()), bytes,
      *from.stream);
  HS_CHECK(from.device->synchronize(from.device->record(*from.stream)).ok());
  return bytes;
}

device::DeviceCounters ModelRig::counters() const { return ranks_.front()->device->counters(); }

base::Ledger ModelRig::allocated() const { return ranks_.front()->device->allocated(); }

base::TokenId argmax(const Logits& logits) {
  return static_cast<base::TokenId>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

double max_difference(const Logits& a, const Logits& b) {
  HS_CHECK(a.size() == b.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    // A NaN must not pass for a small difference.
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

double max_magnitude(const Logits& a) {
  double largest = 0.0;
  for (float value : a) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  return largest;
}

std::string test_data(const std::string& name) {
  const char* root = std::getenv("HISPARSE_TEST_DATA");
  return std::string(root == nullptr ? "tests" : root) + "/" + name;
}

}  // namespace hisparse::test
