// Answers counted by route, method and status.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>
#include <vector>

#include "http/route.h"

namespace hisparse::http {

// The client went away before its answer was complete; nothing was sent under this status.
inline constexpr int kClientClosedRequest = 499;

struct RequestCount {
  std::string_view route;   // name_of(Route)
  std::string_view method;  // name_of(Method)
  int code = 0;
  std::int64_t count = 0;
};

// Any thread.
class HttpCounters final {
 public:
  void add(Route route, Method method, int code);
  std::vector<RequestCount> snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::tuple<Route, Method, int>, std::int64_t> counts_;  // guarded by mutex_
};

}  // namespace hisparse::http
