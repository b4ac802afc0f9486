#include "http/http_counters.h"

namespace hisparse::http {

void HttpCounters::add(Route route, Method method, int code) {
  std::lock_guard lock(mutex_);
  ++counts_[{route, method, code}];
}

std::vector<RequestCount> HttpCounters::snapshot() const {
  std::lock_guard lock(mutex_);
  std::vector<RequestCount> counts;
  for (const auto& [key, count] : counts_) {
    const auto& [route, method, code] = key;
    counts.push_back({name_of(route), name_of(method), code, count});
  }
  return counts;
}

}  // namespace hisparse::http
