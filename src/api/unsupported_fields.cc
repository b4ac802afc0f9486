#include "api/unsupported_fields.h"

#include <cstddef>

namespace hisparse::api {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

// The value, beside null, with which a field asks for nothing.
enum class Neutral { kNothing, kFalse, kTrue, kZero, kOne, kEmpty, kNone, kNoneOrAuto };

struct Field {
  std::string_view name;
  Neutral neutral;
};

constexpr Field kFields[] = {
    {"best_of", Neutral::kOne},
    {"use_beam_search", Neutral::kFalse},
    {"length_penalty", Neutral::kOne},
    {"presence_penalty", Neutral::kZero},
    {"frequency_penalty", Neutral::kZero},
    {"repetition_penalty", Neutral::kOne},
    {"min_p", Neutral::kZero},
    {"min_tokens", Neutral::kZero},
    {"logit_bias", Neutral::kEmpty},
    {"logprobs", Neutral::kFalse},
    {"top_logprobs", Neutral::kZero},
    {"prompt_logprobs", Neutral::kNothing},
    {"logprob_token_ids", Neutral::kEmpty},
    {"echo", Neutral::kFalse},
    {"suffix", Neutral::kEmpty},
    {"prompt_embeds", Neutral::kNothing},
    {"allowed_token_ids", Neutral::kEmpty},
    {"bad_words", Neutral::kEmpty},
    {"include_stop_str_in_output", Neutral::kFalse},
    {"skip_special_tokens", Neutral::kTrue},
    {"spaces_between_special_tokens", Neutral::kTrue},
    {"truncate_prompt_tokens", Neutral::kNothing},
    {"return_token_ids", Neutral::kFalse},
    {"return_tokens_as_token_ids", Neutral::kFalse},
    {"return_prompt_text", Neutral::kFalse},
    {"stream_interval", Neutral::kOne},
    {"priority", Neutral::kZero},
    {"structured_outputs", Neutral::kEmpty},
    {"guided_json", Neutral::kNothing},
    {"guided_regex", Neutral::kNothing},
    {"guided_choice", Neutral::kNothing},
    {"guided_grammar", Neutral::kNothing},
    {"tools", Neutral::kEmpty},
    {"tool_choice", Neutral::kNoneOrAuto},
    {"functions", Neutral::kEmpty},
    {"function_call", Neutral::kNoneOrAuto},
    {"audio", Neutral::kNothing},
    {"prediction", Neutral::kNothing},
    {"web_search_options", Neutral::kNothing},
    {"reasoning", Neutral::kNothing},
    {"reasoning_effort", Neutral::kNone},
    {"thinking_token_budget", Neutral::kNothing},
    {"add_generation_prompt", Neutral::kTrue},
    {"continue_final_message", Neutral::kFalse},
    {"chat_template", Neutral::kNothing},
    {"chat_template_kwargs", Neutral::kEmpty},
    {"documents", Neutral::kEmpty},
};

bool is_number(element value, double wanted) {
  double number = 0;
  return value.get(number) == simdjson::SUCCESS && number == wanted;
}

bool is_bool(element value, bool wanted) {
  bool flag = false;
  return value.get(flag) == simdjson::SUCCESS && flag == wanted;
}

bool is_text(element value, std::string_view wanted) { return text_of(value) == wanted; }

bool is_empty(element value) {
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (value.get(array) == simdjson::SUCCESS) return array.size() == 0;
  if (value.get(object) == simdjson::SUCCESS) return object.size() == 0;
  return is_text(value, "");
}

bool is_neutral(element value, Neutral neutral) {
  switch (neutral) {
    case Neutral::kNothing:
      return false;
    case Neutral::kFalse:
      return is_bool(value, false);
    case Neutral::kTrue:
      return is_bool(value, true);
    case Neutral::kZero:
      return is_number(value, 0);
    case Neutral::kOne:
      return is_number(value, 1);
    case Neutral::kEmpty:
      return is_empty(value);
    case Neutral::kNone:
      return is_text(value, "none");
    case Neutral::kNoneOrAuto:
      return is_text(value, "none") || is_text(value, "auto");
  }
  return false;
}

// response_format {"type":"text"} and modalities ["text"] say what is done anyway.
bool is_text_format(element value) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return false;
  const auto type = FieldReader(object).find("type");
  return type && is_text(*type, "text");
}

bool is_text_modality(element value) {
  simdjson::dom::array array;
  if (value.get(array) != simdjson::SUCCESS) return false;
  for (const element modality : array) {
    if (!is_text(modality, "text")) return false;
  }
  return true;
}

void refuse(FieldReader& fields, std::string_view name) {
  fields.fail(unsupported_parameter(
      name, "'" + std::string(name) + "' with this value is not supported by this server."));
}

}  // namespace

void refuse_unsupported_fields(FieldReader& fields, Endpoint endpoint) {
  for (const Field& field : kFields) {
    const auto value = fields.find(field.name);
    if (value && !is_neutral(*value, field.neutral)) refuse(fields, field.name);
  }
  // A chat template writes its own special tokens; a raw prompt gets the model's.
  const Neutral adds = endpoint == Endpoint::kChat ? Neutral::kFalse : Neutral::kTrue;
  const auto add_special = fields.find("add_special_tokens");
  if (add_special && !is_neutral(*add_special, adds)) refuse(fields, "add_special_tokens");
  const auto format = fields.find("response_format");
  if (format && !is_text_format(*format)) refuse(fields, "response_format");
  const auto modalities = fields.find("modalities");
  if (modalities && !is_text_modality(*modalities)) refuse(fields, "modalities");
}

}  // namespace hisparse::api
