// Bodies of both generation routes: no crash, and what is accepted keeps the promises that the
// engine relies on.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/error.h"
#include "api/request_body.h"
#include "base/check.h"
#include "text/utf8.h"

namespace {

using hisparse::api::Endpoint;
using hisparse::api::RequestBody;

void check_error(const hisparse::api::ApiError& error) {
  HS_CHECK(error.http_status == 400);
  HS_CHECK(hisparse::text::is_valid_utf8(hisparse::api::render_error(error)));
}

void check_body(const RequestBody& body) {
  const auto& sampling = body.sampling;
  HS_CHECK(std::isfinite(sampling.temperature) && sampling.temperature >= 0);
  HS_CHECK(sampling.top_p > 0 && sampling.top_p <= 1);
  HS_CHECK(sampling.top_k >= 0);
  HS_CHECK(!body.max_tokens || *body.max_tokens > 0);
  HS_CHECK(sampling.stop.size() <= hisparse::api::kMaxStopStrings);
  for (const auto& stop : sampling.stop) {
    HS_CHECK(!stop.empty() && hisparse::text::is_valid_utf8(stop));
  }
  for (const auto id : sampling.stop_token_ids) HS_CHECK(id >= 0);
  for (const auto& message : body.messages) {
    HS_CHECK(hisparse::text::is_valid_utf8(message.content));
  }
  HS_CHECK(body.endpoint == Endpoint::kCompletion || !body.messages.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletion}) {
    const auto result = hisparse::api::parse_request_body(endpoint, json);
    if (const auto* error = std::get_if<hisparse::api::ApiError>(&result)) {
      check_error(*error);
    } else {
      check_body(std::get<RequestBody>(result));
    }
  }
  return 0;
}
