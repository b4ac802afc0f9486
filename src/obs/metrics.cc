#include "obs/metrics.h"

#include "obs/family.h"
#include "prometheus/text_serializer.h"

namespace hisparse::obs {

std::string render_metrics(const MetricsInput& input) {
  Families families;
  add_native(families, input);
  add_process(families, input);
  add_vllm_aliases(families, input);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace hisparse::obs
