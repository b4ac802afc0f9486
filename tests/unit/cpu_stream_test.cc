#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "cpu_test_support.h"

namespace hisparse::device {
namespace {

CpuDeviceOptions deferred(std::uint64_t seed) {
  CpuDeviceOptions options = test_options();
  options.streams = StreamMode::kDeferred;
  options.chaos_seed = seed;
  return options;
}

TEST(CpuMemory, AccountsByOwnerAndFreesOnDestruction) {
  TestDevice device;
  {
    auto slab = device.device->allocate(1000, base::MemoryOwner::kKvSlab);
    auto tables = device.device->allocate(1, base::MemoryOwner::kTables);
    ASSERT_TRUE(slab.ok() && tables.ok());
    EXPECT_EQ(slab->as<std::byte>().address() % 64, 0u);
    EXPECT_EQ(device.device->allocated()[base::MemoryOwner::kKvSlab], 1000);
    EXPECT_EQ(device.device->allocated()[base::MemoryOwner::kTables], 1);
    EXPECT_EQ(device.device->allocated().total(), 1001);
  }
  EXPECT_EQ(device.device->allocated(), base::Ledger{});
}

// Small ones share a mapping, and large ones have their own: neither touches its neighbour, before
// or after others are freed.
TEST(CpuMemory, AllocationsOfAllSizesKeepTheirBytesWhileOthersComeAndGo) {
  TestDevice device(CpuDeviceOptions{}, 1);
  std::mt19937 random(1);
  std::vector<std::pair<Buffer, std::byte>> live;
  const auto check = [&](const std::pair<Buffer, std::byte>& entry) {
    for (std::byte value : device.download<std::byte>(entry.first)) {
      ASSERT_EQ(value, entry.second);
    }
  };
  for (int i = 0; i < 300; ++i) {
    const std::size_t bytes = 1 + random() % (i % 10 == 0 ? 5'000'000 : 300'000);
    Buffer buffer = device.allocate(bytes);
    EXPECT_EQ(buffer.as<std::byte>().address() % 64, 0u);
    for (std::byte value : device.download<std::byte>(buffer)) ASSERT_EQ(value, std::byte{0});
    const auto mark = static_cast<std::byte>(1 + i % 255);
    device.device->fill(buffer.as<std::byte>(), mark, bytes, *device.stream);
    live.emplace_back(std::move(buffer), mark);
    if (live.size() < 20) continue;
    const std::size_t gone = random() % live.size();
    check(live[gone]);
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(gone));
  }
  for (const auto& entry : live) check(entry);
  live.clear();
  EXPECT_EQ(device.device->allocated().total(), 0);
}

TEST(CpuMemory, RefusesNothingAndTooMuch) {
  TestDevice device;
  const auto code = [&](std::size_t bytes) {
    return device.device->allocate(bytes, base::MemoryOwner::kStaging).status().code();
  };
  EXPECT_EQ(code(0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::size_t{1} << 60), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(~std::size_t{0}), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device.device->allocated(), base::Ledger{});
}

TEST(CpuMemory, FreshMemoryIsZeroOrNaN) {
  for (AddressMode addresses : {AddressMode::kPlain, AddressMode::kTagged}) {
    for (FreshMemory fresh : {FreshMemory::kZero, FreshMemory::kNaN}) {
      TestDevice device({.addresses = addresses, .fresh = fresh});
      Buffer buffer = device.allocate(4097);
      const auto expected = fresh == FreshMemory::kZero ? std::byte{0} : std::byte{0xFF};
      for (std::byte value : device.download<std::byte>(buffer)) ASSERT_EQ(value, expected);
    }
  }
}

TEST(CpuMemory, FillSetsExactlyItsBytes) {
  TestDevice device;
  Buffer buffer = device.upload(std::vector<std::byte>(10, std::byte{1}));
  device.device->fill(buffer.as<std::byte>() + 2, std::byte{7}, 5, *device.stream);
  const auto out = device.download<std::byte>(buffer);
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(out[i], i >= 2 && i < 7 ? std::byte{7} : std::byte{1});
}

TEST(CpuMemoryDeathTest, TaggedAddressFaultsWhenDereferenced) {
  TestDevice device;
  Buffer buffer = device.allocate(64);
  const auto address = buffer.as<std::byte>().address();
  EXPECT_DEATH(
      {
        volatile int value = *reinterpret_cast<volatile int*>(address);
        (void)value;
      },
      "");
}

TEST(CpuMemoryDeathTest, ReadingBehindATaggedAllocationFaults) {
  TestDevice device;
  Buffer buffer = device.allocate(128);
  std::vector<std::byte> out(129);
  EXPECT_DEATH(device.device->copy_to_host(buffer.as<std::byte>(), out, *device.stream), "");
}

TEST(CpuIsa, ForcedLevelIsReported) {
  const std::map<IsaChoice, std::string> names = {{IsaChoice::kX86_64V2, "x86-64-v2"},
                                                  {IsaChoice::kX86_64V3, "x86-64-v3"},
                                                  {IsaChoice::kX86_64V4, "x86-64-v4"}};
  for (IsaChoice isa : isa_levels()) {
    TestDevice device(isa, 1);
    EXPECT_EQ(device.device->isa_level(), names.at(isa));
  }
}

TEST(CpuStream, ImmediateEventsAreReachedAtOnce) {
  TestDevice device;
  int ran = 0;
  device.device->enqueue_host([&] { ++ran; }, *device.stream);
  EXPECT_EQ(ran, 1);
  const Event event = device.device->record(*device.stream);
  EXPECT_TRUE(device.device->query(event));
  device.device->wait(*device.stream, event);
  EXPECT_TRUE(device.device->query(Event{}));
}

TEST(CpuStream, DeferredWorkRunsInStreamOrderAndOnlyWhenAsked) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    TestDevice device(deferred(seed));
    auto other = device.device->create_stream();
    std::vector<int> order;
    for (int i = 0; i < 5; ++i) {
      device.device->enqueue_host([&, i] { order.push_back(i); }, *device.stream);
      device.device->enqueue_host([&, i] { order.push_back(100 + i); }, *other);
    }
    EXPECT_TRUE(order.empty());
    device.synchronize();
    ASSERT_TRUE(device.device->synchronize(device.device->record(*other)).ok());
    ASSERT_EQ(order.size(), 10u);
    std::vector<int> first, second;
    for (int value : order) (value < 100 ? first : second).push_back(value);
    EXPECT_EQ(first, (std::vector<int>{0, 1, 2, 3, 4}));
    EXPECT_EQ(second, (std::vector<int>{100, 101, 102, 103, 104}));
  }
}

TEST(CpuStream, QueryMakesProgress) {
  TestDevice device(deferred(3));
  int ran = 0;
  for (int i = 0; i < 10; ++i) device.device->enqueue_host([&] { ++ran; }, *device.stream);
  const Event event = device.device->record(*device.stream);
  while (!device.device->query(event)) {
  }
  EXPECT_EQ(ran, 10);
}

TEST(CpuStream, SeedDecidesTheInterleaving) {
  const auto run = [](std::uint64_t seed) {
    TestDevice device(deferred(seed));
    auto other = device.device->create_stream();
    std::vector<int> order;
    for (int i = 0; i < 8; ++i) {
      device.device->enqueue_host([&] { order.push_back(0); }, *device.stream);
      device.device->enqueue_host([&] { order.push_back(1); }, *other);
    }
    device.synchronize();
    EXPECT_TRUE(device.device->synchronize(device.device->record(*other)).ok());
    return order;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

enum class Waits { kAll, kOneMissing };

// A product on one stream, fed by a copy on a second one and drained on a third.
std::vector<float> pipeline(std::uint64_t seed, Waits waits) {
  TestDevice device(deferred(seed));
  const auto weight = device.weight(random_floats(6 * 4, 1), 6, Compute::kF32);
  auto feed = device.device->create_stream();
  auto drain = device.device->create_stream();
  const auto source = random_floats(4, 2);
  Buffer in = device.floats(4);
  Buffer out = device.floats(6);
  std::vector<float> result(6);
  device.device->copy_to_device(std::as_bytes(std::span(source)), in.as<std::byte>(), *feed);
  if (waits == Waits::kAll) device.device->wait(*device.stream, device.device->record(*feed));
  device.device->linear({.products = {{{.weight = weight.get(), .out = out.as<float>()}}},
                         .in = in.as<float>(),
                         .rows = 1},
                        *device.stream);
  device.device->wait(*drain, device.device->record(*device.stream));
  device.device->copy_to_host(out.as<std::byte>(), std::as_writable_bytes(std::span(result)),
                              *drain);
  EXPECT_TRUE(device.device->synchronize(device.device->record(*drain)).ok());
  EXPECT_TRUE(device.device->synchronize(device.device->record(*feed)).ok());
  return result;
}

TEST(CpuStream, ChaosDoesNotChangeACorrectProgram) {
  const auto expected = pipeline(0, Waits::kAll);
  for (float value : expected) EXPECT_FALSE(std::isnan(value));
  for (std::uint64_t seed = 1; seed < 100; ++seed) {
    ASSERT_TRUE(same_bits(pipeline(seed, Waits::kAll), expected)) << "seed " << seed;
  }
}

TEST(CpuStream, ChaosShowsAMissingWait) {
  const auto expected = pipeline(0, Waits::kAll);
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    if (!same_bits(pipeline(seed, Waits::kOneMissing), expected)) ++wrong;
  }
  EXPECT_GT(wrong, 10);
  EXPECT_LT(wrong, 100);
}

TEST(CpuStream, AttentionWaitsForItsTicket) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    TestDevice device(deferred(seed));
    auto restore = device.device->create_stream();
    Buffer page = device.floats(2 * 8);
    Buffer table = device.upload(std::vector<std::uint64_t>{page.as<float>().address()});
    Buffer slots = device.upload(std::vector<std::int32_t>{0});
    Buffer positions = device.upload(std::vector<std::int64_t>{0});
    Buffer q = device.upload(std::vector<float>(8, 1.0f));
    Buffer out = device.floats(8);
    const std::vector<float> kv(16, 2.0f);
    device.device->copy_to_device(std::as_bytes(std::span(kv)), page.as<std::byte>(), *restore);
    const Event restored = device.device->record(*restore);
    device.device->paged_attention({.q = q.as<float>(),
                                    .out = out.as<float>(),
                                    .placement = {.sequence_slots = slots.as<std::int32_t>(),
                                                  .positions = positions.as<std::int64_t>(),
                                                  .rows = 1},
                                    .pages = {.addresses = table.as<std::uint64_t>(),
                                              .pages_per_sequence = 1,
                                              .v_offset = 8 * sizeof(float),
                                              .page_tokens = 1,
                                              .kv_heads = 1,
                                              .head_dim = 8},
                                    .heads = 1,
                                    .scale = 1.0f,
                                    .wait_ticket = restored.ticket},
                                   *device.stream);
    EXPECT_EQ(device.download(out), std::vector<float>(8, 2.0f));
  }
}

TEST(CpuStream, TwoThreadsDriveOneDevice) {
  TestDevice device(deferred(5));
  auto other = device.device->create_stream();
  std::atomic<int> ran{0};
  const auto drive = [&](Stream& stream) {
    for (int i = 0; i < 200; ++i) {
      device.device->enqueue_host([&] { ++ran; }, stream);
      EXPECT_TRUE(device.device->synchronize(device.device->record(stream)).ok());
    }
  };
  std::thread mover([&] { drive(*other); });
  drive(*device.stream);
  mover.join();
  EXPECT_EQ(ran, 400);
}

TEST(CpuStream, HostWorkMayWaitForAnotherStream) {
  TestDevice device(deferred(6));
  auto inner = device.device->create_stream();
  bool inner_ran = false;
  device.device->enqueue_host(
      [&] {
        device.device->enqueue_host([&] { inner_ran = true; }, *inner);
        EXPECT_TRUE(device.device->synchronize(device.device->record(*inner)).ok());
      },
      *device.stream);
  device.synchronize();
  EXPECT_TRUE(inner_ran);
}

void wait_for_what_was_never_recorded() {
  TestDevice device(deferred(7));
  device.device->wait(*device.stream, Event{.ticket = 1000000});
}

void wait_for_the_own_stream() {
  TestDevice device(deferred(7));
  device.device->enqueue_host(
      [&] { (void)device.device->synchronize(device.device->record(*device.stream)); },
      *device.stream);
  device.synchronize();
}

void destroy_with_work_queued() {
  TestDevice device(deferred(7));
  device.device->enqueue_host([] {}, *device.stream);
}

TEST(CpuStreamDeathTest, WaitThatCanNeverEndIsNamed) {
  EXPECT_DEATH(wait_for_what_was_never_recorded(), "deadlock");
  EXPECT_DEATH(wait_for_the_own_stream(), "deadlock");
  EXPECT_DEATH(destroy_with_work_queued(), "before its work had run");
}

}  // namespace
}  // namespace hisparse::device
