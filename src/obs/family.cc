#include "obs/family.h"

namespace hisparse::obs {
namespace {

prometheus::MetricFamily family(std::string name, std::string help, prometheus::MetricType type) {
  prometheus::MetricFamily made;
  made.name = std::move(name);
  made.help = std::move(help);
  made.type = type;
  return made;
}

}  // namespace

prometheus::MetricFamily counter(std::string name, std::string help, std::vector<Series> series) {
  auto made = family(std::move(name), std::move(help), prometheus::MetricType::Counter);
  for (Series& one : series) {
    prometheus::ClientMetric metric;
    metric.label = std::move(one.labels);
    metric.counter.value = one.value;
    made.metric.push_back(std::move(metric));
  }
  return made;
}

prometheus::MetricFamily gauge(std::string name, std::string help, std::vector<Series> series) {
  auto made = family(std::move(name), std::move(help), prometheus::MetricType::Gauge);
  for (Series& one : series) {
    prometheus::ClientMetric metric;
    metric.label = std::move(one.labels);
    metric.gauge.value = one.value;
    made.metric.push_back(std::move(metric));
  }
  return made;
}

prometheus::MetricFamily histogram(std::string name, std::string help,
                                   const engine::Histogram& values, Labels labels) {
  auto made = family(std::move(name), std::move(help), prometheus::MetricType::Histogram);
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < values.counts.size(); ++i) {
    cumulative += static_cast<std::uint64_t>(values.counts[i]);
    if (i < values.bounds.size()) metric.histogram.bucket.push_back({cumulative, values.bounds[i]});
  }
  metric.histogram.sample_count = cumulative;  // the serializer adds the bucket of +Inf
  metric.histogram.sample_sum = values.sum;
  made.metric.push_back(std::move(metric));
  return made;
}

std::vector<Series> one(std::int64_t value) { return one(static_cast<double>(value)); }

std::vector<Series> one(double value) { return {{{}, value}}; }

}  // namespace hisparse::obs
