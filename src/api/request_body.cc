#include "api/request_body.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "api/field_reader.h"
#include "api/prompt_fields.h"
#include "api/unsupported_fields.h"

namespace hisparse::api {
namespace {

using simdjson::dom::element;

constexpr std::int64_t kTopKOff = -1;  // vLLM's other spelling of 0

void read_temperature(FieldReader& fields, engine::SamplingParams& sampling) {
  const auto value = fields.number("temperature");
  if (!value) return;
  const bool in_range = *value >= 0 && *value <= std::numeric_limits<float>::max();
  if (fields.require(in_range, "temperature", "must be a number of at least 0")) {
    sampling.temperature = static_cast<float>(*value);
  }
}

void read_top_p(FieldReader& fields, engine::SamplingParams& sampling) {
  const auto value = fields.number("top_p");
  if (!value) return;
  if (fields.require(*value > 0 && *value <= 1, "top_p", "must be above 0 and at most 1")) {
    // A tiny double must not become 0.
    sampling.top_p = std::max(static_cast<float>(*value), std::numeric_limits<float>::min());
  }
}

void read_top_k(FieldReader& fields, engine::SamplingParams& sampling) {
  const auto value = fields.integer("top_k");
  if (!value) return;
  if (fields.require(*value >= kTopKOff, "top_k", "must be -1 or 0 (off) or a positive integer")) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    sampling.top_k = static_cast<std::int32_t>(std::clamp<std::int64_t>(*value, 0, kMost));
  }
}

void add_stop(FieldReader& fields, element value, std::vector<std::string>& stop) {
  const auto text = text_of(value);
  const bool good = text && !text->empty() && text->size() <= kMaxStopStringBytes;
  if (fields.require(good, "stop", "must hold non-empty strings of at most 1024 bytes")) {
    stop.emplace_back(*text);
  }
}

void read_stop(FieldReader& fields, engine::SamplingParams& sampling) {
  const auto value = fields.find("stop");
  if (!value) return;
  if (value->is_string()) return add_stop(fields, *value, sampling.stop);
  const auto array = fields.array("stop");
  if (!array) return fields.fail_value("stop", "must be a string or an array of strings");
  if (!fields.require(array->size() <= kMaxStopStrings, "stop", "must hold at most 64 strings")) {
    return;
  }
  for (const element item : *array) add_stop(fields, item, sampling.stop);
}

void read_stop_token_ids(FieldReader& fields, engine::SamplingParams& sampling) {
  const auto array = fields.array("stop_token_ids");
  if (!array) return;
  if (!fields.require(array->size() <= kMaxStopTokenIds, "stop_token_ids",
                      "must hold at most 1024 ids")) {
    return;
  }
  for (const element item : *array) {
    const auto id = token_id_of(item);
    if (!fields.require(id.has_value(), "stop_token_ids", "must hold token ids")) return;
    sampling.stop_token_ids.push_back(*id);
  }
}

void read_count(FieldReader& fields) {
  const auto n = fields.integer("n");
  if (!n) return;
  if (fields.require(*n >= 1, "n", "must be at least 1") && *n > 1) {
    fields.fail(unsupported_parameter("n", "'n' above 1 is not supported by this server."));
  }
}

void read_max_tokens(FieldReader& fields, RequestBody& body) {
  // Both are checked, the newer name wins.
  for (const std::string_view name : {"max_tokens", "max_completion_tokens"}) {
    if (body.endpoint == Endpoint::kCompletion && name == "max_completion_tokens") continue;
    const auto value = fields.integer(name);
    if (value && fields.require(*value > 0, name, "must be at least 1")) body.max_tokens = value;
  }
}

void read_cache_salt(FieldReader& fields, RequestBody& body) {
  auto salt = fields.string("cache_salt");
  if (!salt) return;
  const auto is_start = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
  const auto characters = static_cast<std::size_t>(std::ranges::count_if(*salt, is_start));
  if (fields.require(characters >= 1 && characters <= kMaxCacheSaltCharacters, "cache_salt",
                     "must have 1 to 1024 characters")) {
    body.cache_salt = std::move(*salt);
  }
}

void read_stream(FieldReader& fields, RequestBody& body) {
  const bool streams = fields.boolean("stream").value_or(false);
  body.delivery = streams ? Delivery::kStream : Delivery::kWhole;
  const auto object = fields.object("stream_options");
  if (!object) return;
  if (!fields.require(streams, "stream_options", "may be given only with 'stream': true")) return;
  FieldReader options(*object, "stream_options.");
  if (options.boolean("include_usage").value_or(false)) body.stream_usage = StreamUsage::kInclude;
  if (options.boolean("continuous_usage_stats").value_or(false)) {
    const std::string name = options.full_name("continuous_usage_stats");
    options.fail(unsupported_parameter(name, "'" + name + "' is not supported by this server."));
  }
  if (options.error()) fields.fail(*options.error());
}

void read_sampling(FieldReader& fields, RequestBody& body) {
  read_temperature(fields, body.sampling);
  read_top_p(fields, body.sampling);
  read_top_k(fields, body.sampling);
  read_stop(fields, body.sampling);
  read_stop_token_ids(fields, body.sampling);
  body.sampling.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  // -1 is what vLLM's and llama.cpp's users send for "random".
  constexpr std::uint64_t kRandomSeed = ~std::uint64_t{0};
  const auto seed = fields.unsigned_or_signed("seed");
  if (seed && *seed != kRandomSeed) body.seed = *seed;
}

}  // namespace

Result<RequestBody> parse_request_body(Endpoint endpoint, std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  element document;
  if (parser.allocate(std::max<std::size_t>(json.size(), 1), kMaxJsonDepth) != simdjson::SUCCESS) {
    return invalid_json("The body is too large to be parsed.");
  }
  const auto outcome = parser.parse(json.data(), json.size(), /*realloc_if_needed=*/true);
  if (const auto error = outcome.get(document); error != simdjson::SUCCESS) {
    if (error == simdjson::NUMBER_ERROR) {
      return invalid_json("The body holds a malformed number, or an integer of more than 64 bits.");
    }
    return invalid_json(std::string("The body is not valid JSON: ") +
                        simdjson::error_message(error));
  }
  if (document.get(object) != simdjson::SUCCESS) {
    return invalid_json("The body must be a JSON object.");
  }
  if (object.size() > kMaxBodyFields) return invalid_json("The body has more than 1024 fields.");

  FieldReader fields(object);
  RequestBody body;
  body.endpoint = endpoint;
  body.model = fields.string("model");
  if (endpoint == Endpoint::kChat) {
    body.messages = read_messages(fields);
  } else {
    body.prompt = read_prompt(fields);
  }
  read_sampling(fields, body);
  read_max_tokens(fields, body);
  read_count(fields);
  read_cache_salt(fields, body);
  read_stream(fields, body);
  refuse_unsupported_fields(fields, endpoint);
  if (fields.error()) return *fields.error();
  return body;
}

}  // namespace hisparse::api
