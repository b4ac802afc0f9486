// Shorthand for prometheus-cpp's metric families. Only for the .cc files of obs/.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_stats.h"
#include "obs/metrics.h"
#include "prometheus/metric_family.h"

namespace hisparse::obs {

using Families = std::vector<prometheus::MetricFamily>;
using Labels = std::vector<prometheus::ClientMetric::Label>;

struct Series {
  Labels labels;
  double value = 0;
};

prometheus::MetricFamily counter(std::string name, std::string help, std::vector<Series> series);
prometheus::MetricFamily gauge(std::string name, std::string help, std::vector<Series> series);
prometheus::MetricFamily histogram(std::string name, std::string help,
                                   const engine::Histogram& values, Labels labels = {});

// A single series without labels.
std::vector<Series> one(std::int64_t value);
std::vector<Series> one(double value);

// The parts of render_metrics().
void add_native(Families& families, const MetricsInput& input);
void add_process(Families& families, const MetricsInput& input);
void add_vllm_aliases(Families& families, const MetricsInput& input);

}  // namespace hisparse::obs
