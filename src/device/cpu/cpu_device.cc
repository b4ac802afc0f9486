#include "device/cpu/cpu_device.h"

#include <cpuid.h>

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "device/cpu/cpu_memory.h"
#include "device/cpu/cpu_operators.h"
#include "device/cpu/packed_weight.h"
#include "device/cpu/stream_queue.h"

namespace hisparse::device {
namespace {

// Joins the allocator, the streams and the operators of the CPU backend. Owns the first two; the
// pool is shared. A CPU operator cannot fail, so synchronize() never returns an error.
class CpuDevice final : public Device {
 public:
  CpuDevice(base::ThreadPool& pool, const CpuDeviceOptions& options,
            const cpu::KernelTable& kernels, std::string isa_level)
      : memory_(options.addresses, options.fresh),
        queue_(options.streams, options.chaos_seed),
        pool_(pool),
        context_{pool, kernels},
        isa_level_(std::move(isa_level)) {}

  absl::StatusOr<Buffer> allocate(std::size_t bytes, base::MemoryOwner owner) override {
    absl::StatusOr<std::uint64_t> address = memory_.allocate(bytes, owner);
    if (!address.ok()) return address.status();
    return Buffer(this, *address, bytes, owner);
  }
  absl::StatusOr<HostBuffer> allocate_host(std::size_t bytes, base::MemoryOwner owner) override {
    constexpr std::uint64_t kAlignment = kHostAlignment;
    absl::StatusOr<Buffer> buffer = allocate(bytes + kAlignment - 1, owner);
    if (!buffer.ok()) return buffer.status();
    const std::uint64_t address = buffer->as<std::byte>().address();
    const DevicePtr<std::byte> aligned((address + kAlignment - 1) / kAlignment * kAlignment);
    return HostBuffer(std::move(*buffer), std::span(cpu::pointer_to(aligned), bytes), aligned);
  }
  void copy(DevicePtr<const std::byte> source, DevicePtr<std::byte> target, std::size_t bytes,
            Stream& stream) override {
    queue_.enqueue(stream,
                   [=] { copy_bytes(cpu::pointer_to(source), cpu::pointer_to(target), bytes); });
  }
  void fill(DevicePtr<std::byte> target, std::byte value, std::size_t bytes,
            Stream& stream) override {
    queue_.enqueue(
        stream, [=] { std::memset(cpu::pointer_to(target), std::to_integer<int>(value), bytes); });
  }
  void copy_to_device(std::span<const std::byte> source, DevicePtr<std::byte> target,
                      Stream& stream) override {
    queue_.enqueue(stream,
                   [=] { copy_bytes(source.data(), cpu::pointer_to(target), source.size()); });
  }
  void copy_to_host(DevicePtr<const std::byte> source, std::span<std::byte> target,
                    Stream& stream) override {
    queue_.enqueue(stream,
                   [=] { copy_bytes(cpu::pointer_to(source), target.data(), target.size()); });
  }
  base::Ledger allocated() const override { return memory_.allocated(); }

  std::unique_ptr<Stream> create_stream() override { return queue_.create_stream(); }
  Event record(Stream& stream) override { return queue_.record(stream); }
  void wait(Stream& stream, Event event) override { queue_.wait(stream, event); }
  bool query(Event event) override { return queue_.query(event); }
  absl::Status synchronize(Event event) override {
    queue_.synchronize(event);
    return absl::OkStatus();
  }
  void enqueue_host(std::function<void()> work, Stream& stream) override {
    queue_.enqueue(stream, std::move(work));
  }

  absl::StatusOr<std::unique_ptr<Weight>> prepare_weight(const HostMatrix& matrix,
                                                         Compute compute) override {
    return cpu::PackedWeight::pack(matrix, compute, *this, pool_);
  }

  void embed(const EmbedParams& params, Stream& stream) override {
    enqueue(cpu::run_embed, params, stream);
  }
  void linear(const LinearParams& params, Stream& stream) override {
    for (const LinearProduct& product : params.products) {
      if (product.weight == nullptr) break;
      linear_calls_.fetch_add(1, std::memory_order_relaxed);
      linear_rows_.fetch_add(params.rows, std::memory_order_relaxed);
    }
    enqueue(cpu::run_linear, params, stream);
  }
  void rope_angles(const RopeAnglesParams& params, Stream& stream) override {
    enqueue(cpu::run_rope_angles, params, stream);
  }
  void rope_and_store(const RopeAndStoreParams& params, Stream& stream) override {
    enqueue(cpu::run_rope_and_store, params, stream);
  }
  void paged_attention(const PagedAttentionParams& params, Stream& stream) override {
    queue_.wait(stream, Event{.ticket = params.wait_ticket});
    enqueue(cpu::run_paged_attention, params, stream);
  }
  void page_mass(const PageMassParams& params, Stream& stream) override {
    enqueue(cpu::run_page_mass, params, stream);
  }
  void add(const AddParams& params, Stream& stream) override {
    enqueue(cpu::run_add, params, stream);
  }
  void gather_rows(const GatherRowsParams& params, Stream& stream) override {
    enqueue(cpu::run_gather_rows, params, stream);
  }
  void copy_columns(const CopyColumnsParams& params, Stream& stream) override {
    enqueue(cpu::run_copy_columns, params, stream);
  }
  void sum_ranks(const SumRanksParams& params, Stream& stream) override {
    enqueue(cpu::run_sum_ranks, params, stream);
  }
  void sample(const SampleParams& params, Stream& stream) override {
    enqueue(cpu::run_sample, params, stream);
  }

  DeviceCounters counters() const override {
    return {.linear_calls = linear_calls_.load(std::memory_order_relaxed),
            .linear_rows = linear_rows_.load(std::memory_order_relaxed)};
  }
  std::string isa_level() const override { return isa_level_; }

 protected:
  void free(std::uint64_t address, std::size_t bytes, base::MemoryOwner owner) noexcept override {
    memory_.free(address, bytes, owner);
  }

 private:
  static void copy_bytes(const std::byte* source, std::byte* target, std::size_t bytes) {
    // An empty span may have no address.
    if (bytes > 0) std::memcpy(target, source, bytes);
  }

  template <typename Params>
  void enqueue(void (*run)(const cpu::OperatorContext&, const Params&), const Params& params,
               Stream& stream) {
    queue_.enqueue(stream, [this, run, params] { run(context_, params); });
  }

  cpu::CpuMemory memory_;
  cpu::StreamQueue queue_;
  base::ThreadPool& pool_;
  const cpu::OperatorContext context_;
  const std::string isa_level_;
  std::atomic<std::int64_t> linear_calls_{0};
  std::atomic<std::int64_t> linear_rows_{0};
};

struct IsaLevel {
  IsaChoice choice;
  const char* name;
  const char* needs;
  const cpu::KernelTable& (*kernels)();
  bool there;
};

// What x86-64-v3 has beyond what __builtin_cpu_supports knows by name in every compiler.
bool has_f16c_movbe_lzcnt() {
  constexpr unsigned kExtendedFeatures = 0x80000001u;
  unsigned eax = 0, ebx = 0, basic = 0, extended = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &basic, &edx) != 0 && (basic & bit_F16C) != 0 &&
         (basic & bit_MOVBE) != 0 &&
         __get_cpuid(kExtendedFeatures, &eax, &ebx, &extended, &edx) != 0 &&
         (extended & bit_LZCNT) != 0;
}

// From the best down.
std::array<IsaLevel, 3> isa_levels() {
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                  has_f16c_movbe_lzcnt();
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
                  __builtin_cpu_supports("avx512bf16");
  return {{{IsaChoice::kX86_64V4, "x86-64-v4", "AVX-512 with VNNI and BF16", cpu::kernels_v4, v4},
           {IsaChoice::kX86_64V3, "x86-64-v3", "AVX2, FMA and BMI2", cpu::kernels_v3, v3},
           {IsaChoice::kX86_64V2, "x86-64-v2", "SSE4.2", cpu::kernels_v2, true}}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> make_cpu_device(base::ThreadPool& pool,
                                                        const CpuDeviceOptions& options) {
  for (const IsaLevel& level : isa_levels()) {
    if (options.isa != IsaChoice::kBest && options.isa != level.choice) continue;
    if (level.there) {
      return std::make_unique<CpuDevice>(pool, options, level.kernels(), level.name);
    }
    if (options.isa == level.choice) {
      return absl::InvalidArgumentError(std::string("this machine does not have ") + level.name +
                                        " (" + level.needs + ")");
    }
  }
  return absl::InternalError("no instruction-set level");
}

}  // namespace hisparse::device
