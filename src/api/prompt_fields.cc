#include "api/prompt_fields.h"

#include <cstddef>
#include <limits>
#include <utility>

namespace hisparse::api {
namespace {

using simdjson::dom::element;

constexpr std::string_view kContentRule =
    "must be a string or an array of parts {\"type\": \"text\", \"text\": \"...\"}";

// Concatenates text parts.
std::string read_parts(FieldReader& message, simdjson::dom::array parts) {
  std::string content;
  for (const element part : parts) {
    simdjson::dom::object object;
    if (!message.require(part.get(object) == simdjson::SUCCESS, "content", kContentRule)) break;
    FieldReader reader(object, message.full_name("content[]."));
    const auto type = reader.string("type");
    if (type && *type != "text") {
      reader.fail(
          unsupported_parameter(message.full_name("content"),
                                "Only content parts of type 'text' are supported by this server."));
    }
    const auto text = reader.string("text");
    if (reader.error()) message.fail(*reader.error());
    if (!message.require(type && text, "content", kContentRule)) break;
    content += *text;
  }
  return content;
}

std::string read_content(FieldReader& message, std::string_view role) {
  const auto content = message.find("content");
  if (!content) {
    // An assistant turn may be empty in a history; nobody else's makes sense.
    message.require(role == "assistant", "content", "must be given");
    return {};
  }
  if (content->is_string()) return message.string("content").value_or("");
  simdjson::dom::array parts;
  if (message.require(content->get(parts) == simdjson::SUCCESS, "content", kContentRule)) {
    return read_parts(message, parts);
  }
  return {};
}

std::string read_role(FieldReader& message) {
  std::string role = message.string("role").value_or("");
  if (role == "developer") return "system";
  if (role == "system" || role == "user" || role == "assistant") return role;
  if (role == "tool" || role == "function") {
    message.fail(unsupported_parameter(message.full_name("role"),
                                       "Messages of role '" + role + "' are not supported."));
  }
  message.fail_value("role", "must be one of system, developer, user and assistant");
  return role;
}

void refuse_calls(FieldReader& message) {
  for (const std::string_view name : {"tool_calls", "function_call"}) {
    const auto value = message.find(name);
    simdjson::dom::array array;
    if (!value || (value->get(array) == simdjson::SUCCESS && array.size() == 0)) continue;
    const std::string field = message.full_name(name);
    message.fail(unsupported_parameter(field, "'" + field + "' is not supported by this server."));
  }
}

std::vector<base::TokenId> read_token_prompt(FieldReader& fields, simdjson::dom::array array) {
  std::vector<base::TokenId> ids;
  ids.reserve(array.size());
  for (const element item : array) {
    const auto id = token_id_of(item);
    if (!fields.require(id.has_value(), "prompt", "must hold token ids of at least 0")) break;
    ids.push_back(*id);
  }
  return ids;
}

// [string] and [[int]] with one entry are that entry; more are several prompts.
element only_entry(FieldReader& fields, element prompt) {
  simdjson::dom::array array;
  if (prompt.get(array) != simdjson::SUCCESS || array.size() == 0) return prompt;
  const element first = *array.begin();
  if (!first.is_string() && !first.is_array()) return prompt;
  if (array.size() > 1) {
    fields.fail(unsupported_parameter("prompt", "Several prompts are not supported yet."));
  }
  return first;
}

}  // namespace

std::optional<base::TokenId> token_id_of(element value) {
  const auto id = integer_of(value);
  if (!id || *id < 0 || *id > std::numeric_limits<base::TokenId>::max()) return std::nullopt;
  return static_cast<base::TokenId>(*id);
}

std::vector<text::ChatMessage> read_messages(FieldReader& fields) {
  std::vector<text::ChatMessage> messages;
  const auto array = fields.array("messages");
  if (!array) {
    fields.fail_value("messages", "must be given");
    return messages;
  }
  fields.require(array->size() > 0, "messages", "must hold at least one message");
  for (const element item : *array) {
    const std::string path = "messages[" + std::to_string(messages.size()) + "]";
    simdjson::dom::object object;
    if (!fields.require(item.get(object) == simdjson::SUCCESS, path, "must be an object")) break;
    FieldReader message(object, path + ".");
    text::ChatMessage read;
    read.role = read_role(message);
    read.content = read_content(message, read.role);
    refuse_calls(message);
    if (message.error()) {
      fields.fail(*message.error());
      break;
    }
    messages.push_back(std::move(read));
  }
  return messages;
}

std::variant<std::string, std::vector<base::TokenId>> read_prompt(FieldReader& fields) {
  const auto given = fields.find("prompt");
  if (!given) {
    fields.fail_value("prompt", "must be given");
    return {};
  }
  const element prompt = only_entry(fields, *given);
  if (prompt.is_string()) {
    const auto text = text_of(prompt);
    if (!fields.require(text && !text->empty(), "prompt", "must be non-empty, valid Unicode")) {
      return {};
    }
    return std::string(*text);
  }
  simdjson::dom::array array;
  if (!fields.require(prompt.get(array) == simdjson::SUCCESS, "prompt",
                      "must be a string or an array of token ids")) {
    return {};
  }
  fields.require(array.begin() != array.end(), "prompt", "must not be empty");
  return read_token_prompt(fields, array);
}

}  // namespace hisparse::api
