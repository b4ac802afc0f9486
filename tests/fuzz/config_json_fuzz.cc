// Whatever the bytes, the readers of config.json and of the shard index give an error or plain
// values, and the planner gives an error or a plan whose sizes make sense.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "format/hugging_face.h"
#include "format/json_metadata.h"
#include "plan/capacity.h"

namespace {

// Endless lower tiers, the longest context, every type of row.
void plan_model(const hisparse::plan::ModelGeometry& geometry) {
  using namespace hisparse;
  for (const plan::RowType rows :
       {plan::RowType::kF32, plan::RowType::kBf16, plan::RowType::kFp8}) {
    plan::GpuRequest request;
    request.geometry = geometry;
    request.machine = *plan::parse_machine("64xH200");
    if (!plan::check_ranks(geometry, request.machine.count).ok()) request.machine.count = 1;
    request.weights = plan::WeightFormat::kF32;
    request.rows = rows;
    request.draft_tokens = geometry.mtp_layers > 0 ? 16 : 0;
    request.page_tokens = 1024;
    request.step_tokens = 1 << 24;
    request.host_bytes = std::int64_t{1} << 50;
    request.disk_bytes = std::int64_t{1} << 50;
    const auto plan = plan::plan_gpus(request);
    if (!plan.ok()) continue;
    HS_CHECK(plan->memory.weights > 0 && plan->memory.activations > 0 && plan->memory.kv > 0);
    HS_CHECK(plan->shape.rows.rank() > 0 && !plan->contexts.empty());
    for (const plan::ContextCapacity& line : plan->contexts) {
      HS_CHECK(line.requests >= line.spilled && line.spilled >= 0);
    }
    HS_CHECK(plan->use.host >= 0 && plan->use.host <= request.host_bytes);
    HS_CHECK(plan->use.disk >= 0 && plan->use.resident_pages >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hisparse;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto values = format::parse_json_metadata(text, "config.json", "p.");
  if (values.ok()) {
    for (const auto& [key, value] : *values) HS_CHECK(key.starts_with("p."));
  }
  auto config = format::parse_json_metadata(text, "config.json", "");
  if (config.ok()) {
    const auto geometry = plan::read_geometry(format::Metadata(*std::move(config)));
    if (geometry.ok()) plan_model(*geometry);
  }
  const auto shards = format::parse_weight_map(text, "model.safetensors.index.json");
  if (shards.ok()) {
    for (const auto& [tensor, shard] : *shards) HS_CHECK(shard.find('/') == std::string::npos);
  }
  return 0;
}
