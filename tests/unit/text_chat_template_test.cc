#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/text_fixtures.h"

namespace hisparse::text {
namespace {

using ::testing::HasSubstr;

const std::vector<ChatMessage> kChat = {{"user", " Hi there "}, {"assistant", "Yo"}};

absl::StatusOr<RenderedPrompt> render(std::string_view source,
                                      const std::vector<ChatMessage>& messages = kChat) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->render(
      messages, {.add_generation_prompt = true, .bos_token = "<s>", .eos_token = "</s>"});
}

// The output with user bytes in square brackets.
std::string marked(std::string_view source, const std::vector<ChatMessage>& messages = kChat) {
  const auto prompt = render(source, messages);
  if (!prompt.ok()) return prompt.status().ToString();
  std::string result;
  std::size_t position = 0;
  for (const UserSpan& span : prompt->user_spans) {
    EXPECT_TRUE(span.begin >= position && span.end > span.begin && span.end <= prompt->text.size());
    result += prompt->text.substr(position, span.begin - position);
    result += "[" + prompt->text.substr(span.begin, span.end - span.begin) + "]";
    position = span.end;
  }
  return result + prompt->text.substr(position);
}

std::string error_of(std::string_view source) {
  const auto prompt = render(source);
  return prompt.ok() ? "rendered" : prompt.status().ToString();
}

TEST(ChatTemplate, AgreesWithJinja2) {
  for (const auto& one : testing::read_json("chat_templates.json")) {
    std::vector<ChatMessage> messages;
    for (const auto& message : one.at("messages"))
      messages.push_back({message.at(0), message.at(1)});
    const std::string source = one.at("template");
    const auto parsed = ChatTemplate::parse(source);
    const RenderOptions options{one.at("generate").get<bool>(), "<s>", "</s>"};
    absl::StatusOr<RenderedPrompt> prompt =
        parsed.ok() ? (*parsed)->render(messages, options) : parsed.status();
    EXPECT_EQ(prompt.ok(), one.contains("text")) << source << "\n" << prompt.status();
    if (prompt.ok() && one.contains("text")) {
      EXPECT_EQ(prompt->text, one.at("text").get<std::string>()) << source;
    }
  }
}

TEST(ChatTemplate, ContentAndRolesAreMarkedAsUserText) {
  EXPECT_EQ(marked("{% for m in messages %}<|{{ m.role }}|>{{ m['content'] }}<|end|>{% endfor %}"),
            "<|[user]|>[ Hi there ]<|end|><|[assistant]|>[Yo]<|end|>");
  EXPECT_EQ(marked("{{ bos_token + messages[0]['content'] + eos_token }}"), "<s>[ Hi there ]</s>");
}

TEST(ChatTemplate, MarksSurviveStringOperations) {
  EXPECT_EQ(marked("{{ '<' ~ messages[0].content | trim ~ '>' }}"), "<[Hi there]>");
  EXPECT_EQ(marked("{{ ('<' + messages[0].content + '>')[2:-2] }}"), "[Hi there]");
  EXPECT_EQ(marked("{{ ('<' + messages[1].content + '>')[::-1] }}"), ">[oY]<");
  EXPECT_EQ(marked("{{ messages[0].content.strip().split(' ') | join('|') }}"), "[Hi]|[there]");
  EXPECT_EQ(marked("{{ messages[0].content.split() | last }}"), "[there]");
  EXPECT_EQ(marked("{{ 'a-b'.replace('-', messages[1].content) }}"), "a[Yo]b");
  EXPECT_EQ(marked("{{ messages[1].content.replace('o', '-') }}"), "[Y]-");
  EXPECT_EQ(marked("{{ messages[1].content | upper }}{{ 'x'.upper() }}"), "[YO]X");
  EXPECT_EQ(marked("{{ ('a' ~ messages[1].content).lower() }}"), "[ayo]");
  EXPECT_EQ(marked("{{ messages[1].content * 2 }}"), "[YoYo]");
  EXPECT_EQ(marked("{{ messages[1].content[0] }}{{ messages[1].content | last }}"), "[Yo]");
  EXPECT_EQ(marked("{{ messages[1].content | string | default('x') }}"), "[Yo]");
  EXPECT_EQ(marked("{% for c in messages[1].content %}.{{ c }}{% endfor %}"), ".[Y].[o]");
}

TEST(ChatTemplate, MarksSurviveVariablesAndContainers) {
  EXPECT_EQ(marked("{% set x = 'a' ~ messages[1].content %}{{ x ~ 'b' }}"), "a[Yo]b");
  EXPECT_EQ(marked("{% set ns = namespace(t='') %}{% for m in messages %}"
                   "{% set ns.t = ns.t ~ m.content ~ ';' %}{% endfor %}{{ ns.t }}"),
            "[ Hi there ];[Yo];");
  EXPECT_EQ(marked("{{ {'k': messages[1].content}.k }}{{ [messages[1].content][0] }}"), "[YoYo]");
  EXPECT_EQ(marked("{% for k, v in {messages[1].content: 'v'}.items() %}{{ k ~ v }}{% endfor %}"),
            "[Yo]v");
  EXPECT_EQ(marked("{{ messages[1].content if true else 'x' }}{{ '' or messages[1].role }}"),
            "[Yoassistant]");
}

TEST(ChatTemplate, TextOfTheTemplateIsNotMarked) {
  EXPECT_EQ(
      marked("{% if messages[1].content == 'Yo' %}{{ 'Yo' }}{% endif %}{{ messages | length }}"),
      "Yo2");
  EXPECT_EQ(marked("a{{ messages[0].content }}b", {{"user", ""}}), "ab");
}

TEST(ChatTemplate, WhatIsNotImplementedIsRefusedByNameWithTheLine) {
  const std::vector<std::pair<const char*, const char*>> refused = {
      {"\n\n{% macro f() %}{% endmacro %}", "line 3: statement 'macro'"},
      {"{% include 'x' %}", "statement 'include'"},
      {"{% import 'x' as y %}", "statement 'import'"},
      {"{% generation %}{% endgeneration %}", "statement 'generation'"},
      {"{% call f() %}{% endcall %}", "statement 'call'"},
      {"{% raw %}{% endraw %}", "statement 'raw'"},
      {"{% filter upper %}x{% endfilter %}", "statement 'filter'"},
      {"{% break %}", "statement 'break'"},
      {"{% set x %}y{% endset %}", "'set' as a block"},
      {"{% set a, b = [1, 2] %}", "'set' with several targets"},
      {"{% for x in y if x %}{% endfor %}", "'for' with 'if'"},
      {"{% for x in y recursive %}{% endfor %}", "'for' with 'recursive'"},
      {"{{\n'x' | reject }}", "line 2: filter 'reject'"},
      {"{{ 1 is divisibleby 3 }}", "test 'divisibleby'"},
      {"{{ strftime_now('%Y') }}", "function 'strftime_now'"},
      {"{{ 'x'.title() }}", "method 'title'"},
      {"{{ messages[0].items }}", "method 'items' without a call"},
      {"{% for x in y %}{{ loop.previtem }}{% endfor %}", "'loop.previtem'"},
      {"{{ 2 ** 3 }}", "operator '**'"},
      {"{{ (1, 2) }}", "a tuple"},
      {"{{ [1, 2] | join(',', attribute='x') }}", "argument 'attribute' of 'join'"},
      {"{{ 0x1F }}", "number beginning with '0'"},
      {"{{ 99999999999999999999 }}", "out of range"},
      {"{{ messages[0]['x']() }}", "calling an expression"},
  };
  for (const auto& [source, what] : refused) {
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_FALSE(parsed.ok()) << source;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kUnimplemented) << source;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(what));
  }
}

TEST(ChatTemplate, RaisedMessageIsPassedOn) {
  const auto prompt = render("{{ raise_exception('Only ' ~ messages[0].role) }}");
  EXPECT_EQ(prompt.status(), absl::InvalidArgumentError("Only user"));
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_THAT(error_of("a\nb{{ 'x' + 1 }}"), HasSubstr("line 2: '+' between str and int"));
  EXPECT_THAT(error_of("\n\n{{ nothing.x }}"), HasSubstr("line 3: 'x' of an undefined value"));
  EXPECT_THAT(error_of("\n{# \n\n #}\n{% if %}"), HasSubstr("line 5"));
  EXPECT_THAT(error_of("{{ [1] }}"), HasSubstr("printing a list is not supported"));
}

TEST(ChatTemplate, IntegersDoNotOverflow) {
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ 9223372036854775807 * 2 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ (-9223372036854775807 - 1) // -1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ -(-9223372036854775807 - 1) }}"), HasSubstr("64 bits"));
  EXPECT_EQ(marked("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_EQ(marked("{{ 'abc'[-9223372036854775807 - 1:9223372036854775807:9223372036854775807] }}"),
            "a");
  EXPECT_EQ(marked("{{ 'abc'[::-9223372036854775807 - 1] }}"), "c");
}

std::string repeated(std::string_view unit, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += unit;
  return text;
}

TEST(ChatTemplate, DeepNestingIsRefusedWhenParsing) {
  constexpr int kDeep = 20000;
  const std::vector<std::string> sources = {
      "{{ " + repeated("(", kDeep) + "1" + repeated(")", kDeep) + " }}",
      "{{ " + repeated("[", kDeep) + repeated("]", kDeep) + " }}",
      "{{ " + repeated("{'a':", kDeep) + "1" + repeated("}", kDeep) + " }}",
      "{{ " + repeated("-", kDeep) + "1 }}",
      "{{ " + repeated("not ", kDeep) + "1 }}",
      "{{ 1" + repeated(" + 1", kDeep) + " }}",
      "{{ 1" + repeated(" ~ 1", kDeep) + " }}",
      "{{ 1" + repeated(" or 1", kDeep) + " }}",
      "{{ 1" + repeated(" | trim", kDeep) + " }}",
      "{{ x" + repeated("[0]", kDeep) + " }}",
      "{{ x" + repeated(".y", kDeep) + " }}",
      "{{ x" + repeated(".get(x", kDeep) + repeated(")", kDeep) + " }}",
      "{{ 1" + repeated(" if 1 else 1", kDeep) + " }}",
      "{{ 1" + repeated(" if 1", kDeep) + " }}",
      repeated("{% if 1 %}", kDeep) + repeated("{% endif %}", kDeep),
      repeated("{% for x in y %}", kDeep) + repeated("{% endfor %}", kDeep),
  };
  for (const std::string& source : sources) {
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_FALSE(parsed.ok()) << source.substr(0, 40);
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("deep")) << source.substr(0, 40);
  }
  EXPECT_EQ(marked("{{ " + repeated("(", 50) + "1" + repeated(")", 50) + " }}"), "1");
}

TEST(ChatTemplate, WorkIsBounded) {
  const std::string hundred = "[" + repeated("1,", 100) + "]";
  std::string loops = "{% if not a %}{% endif %}",
              doubling = "{% set ns = namespace(t='0123456789', l=[1]) %}";
  for (int i = 0; i < 8; ++i) loops = "{% for a in " + hundred + " %}" + loops + "{% endfor %}";
  const auto grow = [&](const std::string& step) {
    return doubling + "{% for a in " + hundred + " %}" + step + "{% endfor %}";
  };
  for (const std::string& source :
       {loops, grow("{% set ns.t = ns.t + ns.t %}"),
        grow("{% set ns.t = ns.t.replace('0', ns.t) %}"), grow("{% set ns.l = ns.l + ns.l %}"),
        grow("{% set ns.l = [ns.l] %}"), grow("{% set ns.t = ns.t ~ ns.t %}{{ ns.t }}"),
        std::string("{{ 'x' * 9223372036854775807 }}"),
        grow("{% set ns.t = [ns.t, ns.t] | join %}")}) {
    EXPECT_EQ(render(source).status().code(), absl::StatusCode::kResourceExhausted)
        << source.substr(0, 60) << render(source).status();
  }
}

TEST(ChatTemplate, NamespacesCannotBeNested) {
  EXPECT_THAT(error_of("{% set a = namespace() %}{% set a.a = a %}"), HasSubstr("namespace"));
  EXPECT_THAT(error_of("{% set a = namespace() %}{% set a.a = [a] %}"), HasSubstr("namespace"));
}

TEST(ChatTemplate, BytesThatAreNotUtf8AreRefused) {
  EXPECT_FALSE(ChatTemplate::parse("\xFF").ok());
  EXPECT_FALSE(render("{{ messages[0].content }}", {{"user", "\xC3"}}).ok());
  EXPECT_FALSE(render("{{ messages[0].content }}", {{"\xC3", "x"}}).ok());
}

}  // namespace
}  // namespace hisparse::text
