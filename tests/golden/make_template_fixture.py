#!/usr/bin/env python3
"""Writes tests/golden/data/chat_templates.json: chat templates and what Python's jinja2 makes of them.

Usage: make_template_fixture.py OUTPUT_FOLDER
Needs the Python package jinja2. The environment is the one that Hugging Face uses for chat templates.
"""

import json
import pathlib
import sys

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def raise_exception(message):
    raise TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.globals["raise_exception"] = raise_exception
    return env


CONVERSATIONS = {
    "empty": [],
    "one": [("user", "Hello there")],
    "chat": [("system", "  Be brief. \n"), ("user", "Hi, what is 2+2?\n"), ("assistant", "<think>easy</think>\n\n4"),
             ("user", " Größe 😀 \u3000")],
    "bad_order": [("user", "a"), ("user", "b")],
    "odd": [("user", ""), ("assistant", "\n\n"), ("tool", "{\"a\": [1, 2]}"), ("user", "a,b,,c  d\te\n")],
}

# Whole templates, in the manner of the families that are in use.
WHOLE = {
    "chatml_default_system":
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "chatml_multiline": """
{%- for message in messages %}
    {%- if message.role == "system" %}
        {{- "<|im_start|>system\\n" ~ message.content | trim ~ "<|im_end|>\\n" }}
    {%- else %}
        {{- "<|im_start|>" ~ message.role ~ "\\n" ~ message.content ~ "<|im_end|>\\n" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|im_start|>assistant\\n" }}
{%- endif %}
""",
    "instruct_alternating": """{{ bos_token }}
{% if messages and messages[0]['role'] == 'system' %}
{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] | trim %}
{% else %}
{% set loop_messages = messages %}
{% set system_message = false %}
{% endif %}
{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate') }}
{% endif %}
{% if loop.index0 == 0 and system_message != false %}
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
{% else %}
{% set content = message['content'] %}
{% endif %}
{% if message['role'] == 'user' %}
[INST] {{ content.strip() }} [/INST]
{% elif message['role'] == 'assistant' %}
 {{ content.strip() }} {{ eos_token }}
{% endif %}
{% endfor %}""",
    "namespace_last_user": """
{%- set ns = namespace(last=-1, seen=false, note='') -%}
{%- for m in messages[::-1] -%}
{%- set i = messages|length - 1 - loop.index0 -%}
{%- if not ns.seen and m.role == 'user' and m.content is string -%}
{%- set ns.last = i -%}{%- set ns.seen = true -%}{%- set ns.note = ns.note ~ m.content -%}
{%- endif -%}
{%- endfor -%}
{%- for m in messages %}
<|{{ m.role }}|>
{%- set content = m.content if m.content is string else '' %}
{%- if m.role == 'assistant' and '</think>' in content %}
{%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- if loop.index0 > ns.last %}<t>{{ thought }}</t>{% endif %}
{%- endif %}
{{ content }}
{%- endfor %}
[{{ ns.last }}|{{ ns.note }}]
""",
    "turns_with_map": """
{%- set names = {'assistant': 'model', 'user': 'user'} -%}
{{ bos_token }}
{%- for message in messages -%}
{%- if message['role'] in names -%}
{{ '<start_of_turn>' + names[message['role']] + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
""",
    "tools_absent": "{% if tools %}TOOLS{% elif tools is none %}no tools{% endif %}"
                    "{% if documents is not none %}docs{% endif %}{% if xyz is defined %}x{% endif %}",
}

# Small pieces, one behaviour each; `c` is a message with text.
PIECES = """
{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 3 }}
{{ 1.5 + 1 }} {{ 1e3 }} {{ 1e16 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456789.125 }} {{ -0.0 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1e22 }}
{{ 7.5 % -2 }} {{ -7.5 % -2 }} {{ -7.5 // 2 }} {{ 7.5 // -2 }} {{ 4.0 % -2 }} {{ 0.1 + 0.2 }} {{ 3.0 }} {{ 2.5 * 2 }} {{ 10 / 4.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ true + 1 }} {{ true == 1 }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ none == false }} {{ [1, 'a'] == [1.0, 'a'] }} {{ {'a': 1} == {'a': true} }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 'é' > 'z' }} {{ 2 >= 2.0 }} {{ 1 != 2 }}
{{ 'ell' in 'hello' }} {{ '' in 'x' }} {{ 1 in [1, 2] }} {{ 'a' in {'a': 1} }} {{ 'b' not in {'a': 1} }} {{ 3 not in [1] }} {{ 'x' in nothing }}
{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or none }} {{ not 0 }} {{ not not 1 }} {{ not 1 == 2 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 }} {{ 'a' 'b' }} {{ 'ab' * 3 }}|{{ 2 * 'ab' }}|{{ 'ab' * 0 }}|{{ 'x' * -1 }}
{{ 1 if true else 2 }} {{ 1 if false else 2 }} {{ 1 if false }} {{ 'a' if 0 else 'b' if 0 else 'c' }} {{ (1 if true) + 1 }}
{{ -1 }} {{ - 1 }} {{ --1 }} {{ +1 }} {{ 2 - -1 }} {{ -(1 + 2) }} {{ true }} {{ False }} {{ None }} {{ none }}
{{ [1, 2, 3][0] }} {{ [1, 2, 3][-1] }} {{ [1, 2, 3][5] }} {{ 'héllo'[1] }} {{ 'héllo'[-1] }} {{ {'a': 'b'}['a'] }} {{ {'a': 'b'}.a }} {{ {'a': 'b'}['z'] }}
{{ 'héllo'[1:3] }} {{ 'héllo'[:-1] }} {{ 'héllo'[-3:] }} {{ 'héllo'[::-1] }} {{ 'héllo'[::2] }} {{ 'héllo'[10:] }}|{{ 'héllo'[3:1] }}|{{ 'abc'[-100:2] }}|{{ 'abc'[2::-1] }}
{{ [1, 2, 3, 4][1:3] | join(',') }} {{ [1, 2, 3, 4][::-1] | join(',') }} {{ [1, 2, 3, 4][:-1] | join }} {{ [1, 2, 3, 4][none:2] | join }} {{ [1,2,3,4,5][4:0:-2]|join }}
{{ [1, 2] | length }} {{ 'héllo' | length }} {{ {} | length }} {{ nothing | length }} {{ 'abc' | count }} {{ ([1] + [2, 3]) | length }}
{{ '  x y ' | trim }}| {{ '\\u3000x\\xa0' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 5 | trim }}|{{ nothing | trim }}|{{ 'abcba' | trim(chars='ab') }}
{{ 'abC' | upper }} {{ 'aBÉ' | lower }} {{ 'äöñ' | upper }} {{ none | upper }} {{ 'abc'.upper() }} {{ 'ABÇ'.lower() }}
{{ nothing | default('d') }} {{ '' | default('d') }}|{{ '' | default('d', true) }} {{ none | default('d') }} {{ none | default('d', boolean=true) }} {{ nothing | d('e') }} {{ nothing | default }}|
{{ [1, 'a', none, true] | join('-') }} {{ 'abc' | join('.') }} {{ {'x': 1, 'y': 2} | join }} {{ [] | join('x') }}|{{ nothing | join('x') }}|{{ [1, 2] | join(d=', ') }}
{{ [1, 2] | first }} {{ [1, 2] | last }} {{ [] | first }}|{{ 'héy' | last }} {{ 'héy' | first }} {{ {'a': 1} | first }} {{ 5 | string ~ 'x' }} {{ 1.0 | string | length }}
{{ x is defined }} {{ messages is defined }} {{ x is undefined }} {{ x is not defined }} {{ none is none }} {{ x is none }} {{ 'a' is string }} {{ 1 is string }} {{ {} is mapping }} {{ [] is mapping }}
{{ [] is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ x is iterable }} {{ {} is iterable }} {{ true is boolean }} {{ 1 is boolean }} {{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ '1' is number }}
{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ not 1 is string }} {{ 1 + 1 is number }} {{ 'a' ~ 'b' | upper }} {{ -1 | string }} {{ -1 is number }}
{{ ' a '.strip() }}|{{ 'xax'.strip('x') }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'éaé'.strip('é') }}|{{ '\\x1c a\\x85'.strip() }}|{{ ' a'.strip(none) }}|{{ '    '.strip() }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith('abcd') }} {{ 'abc'.endswith('') }}
{{ 'a,b,,c'.split(',') | join('|') }} {{ ' a  b c '.split() | join('|') }} {{ ' a  b c '.split(none, 1) | join('|') }} {{ 'a,b,c'.split(',', 1) | join('|') }} {{ 'abc'.split('x') | length }} {{ ''.split(',') | length }} {{ ''.split() | length }} {{ 'a,b'.split(sep=',', maxsplit=1)[1] }} {{ 'a--b--c'.split('--')[-1] }} {{ 'a b c'.split(none, 0) | join('|') }}
{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc'.replace('X', '', 1) }} {{ 'aaa'.replace('aa', 'b') }} {{ 'abc'.replace('z', 'y') }} {{ 'aa'.replace('a', 'aa') }}
{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {% for k, v in {'a': 1, 'b': 'x'}.items() %}{{ k }}={{ v }};{% endfor %}
{% for x in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}
{% for x in [] %}x{% else %}none{% endfor %}{% for x in nothing %}x{% else %}none{% endfor %}{% for c in 'aé' %}[{{ c }}]{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% for x in [1] %}{% set y = 2 %}{% endfor %}{{ y is defined }} {% if true %}{% set z = 3 %}{% endif %}{{ z }} {% for x in [1] %}{% endfor %}{{ x is defined }}
{% set ns = namespace(a=1) %}{% for i in [1, 2, 3] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns.b is defined }} {{ ns['a'] }}
{% for i in [1, 2] %}{% for j in ['a', 'b'] %}{{ i }}{{ j }}{{ loop.index }}{{ loop.last }} {% endfor %}{{ loop.index }}{% endfor %}
{% if 0 %}a{% elif '' %}b{% elif [] %}c{% elif {} %}d{% elif none %}e{% elif nothing %}f{% elif 0.0 %}g{% else %}h{% endif %}
{# a comment #}a{# another
on two lines #}b {#- stripped -#} c {{- 'x' -}} d {{ 'y' }} e
{{ "double \\"q\\" and 'single'" }} {{ 'it\\'s' }} {{ 'a\\tb\\\\n' }} {{ '\\x41\\u00e9\\U0001F600\\101' }} {{ '\\d\\q' }} {{ 'é' }} {{ '{{ }}' }} {{ "%}" }}
{{ {'a': {'b': [1, {'c': 'deep'}]}}.a.b[1].c }} {{ {'a': {}} | length }} {{ {"k": "v",}["k"] }} {{ [1, 2,] | length }} {{ {'a': 1, 'a': 2}['a'] }}
{{ messages[0].role }} {{ messages[0]['content'] }} {{ messages[-1].content | trim }} {{ messages[99] is defined }} {{ messages | length }} {{ messages[0].nothing }}
{{ messages[0].content.nothing is defined }} {{ 5 .x is defined }} {{ none.x is defined }} {{ 'abc'['x'] is defined }} {{ [1]['x'] is defined }}
{{ nothing }}|{{ nothing ~ 'x' }}|{{ not nothing }}|{{ nothing == nothing2 }}|{{ nothing == none }}|{{ nothing | upper }}|{{ nothing | string }}|{{ nothing or 'z' }}
{{ 'abc' == "abc" and 'x' or 'y' }} {{ 1 == 1 and 2 == 2 or 3 == 4 }} {{ (1 or 0) and 0 }} {{ 2 if 1 == 1 and not 0 else 3 }}
{{ 1 is defined and 2 is defined }} {{ 'x' if messages is defined and messages else 'y' }} {{ 'a' in 'abc' and 'z' not in 'abc' }} {{ not 'a' in 'abc' }}
  {% if true %}
    indented
  {% endif %}
after
  {%- if true %} x {% endif -%}  y
a {%+ if true %} b {%+ endif %} c
  {%+ if true %} b {% endif +%}
c
line {% if true %}
in{% endif %}
 {{ 'v' }}
 {# gone #}
 {#- gone -#}
 {# kept newline +#}
end
{{ 'trailing newline goes' }}

{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ bos_token ~ messages[0].role }}
{{ 1 | default(2) | string | length }} {{ ('a' | upper).lower() }} {{ 'abc'.upper()[1:] }} {{ 'a b'.split()[0].upper() }} {{ messages[0]['role'].upper() | lower }}
{% set a = [1] %}{% set b = a + [2] %}{{ a | length }}{{ b | length }} {% set t = 'x' if true else 'y' %}{{ t }} {% set d = {'k': [1]} %}{{ d.k[0] }}
{{ loop is defined }} {% for x in [1] %}{{ loop is defined }}{% endfor %} {{ 'a\\
b' }} {{ 'a
b' }}
"""

ERRORS = [
    "{{ raise_exception('no') }}", "{{ nothing.x }}", "{{ nothing['x'] }}", "{{ 'a' + 1 }}", "{{ 'a' + nothing }}",
    "{{ 'a' + none }}", "{{ 1 + none }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1 / 0 }}", "{{ 'a' < 1 }}", "{{ none < 1 }}",
    "{{ 1 in 5 }}", "{{ 1 in 'a' }}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{{ 5 | length }}",
    "{{ none.strip() }}", "{{ 5 .strip() }}", "{{ nothing.strip() }}", "{{ 'a'.split('') }}", "{% set x = 1 %}{% set x.y = 2 %}",
    "{{ -'a' }}", "{% set v = 5 %}{{ v[1:] }}", "{% for a, b in [[1]] %}{% endfor %}", "{{ 'abc'[::0] }}", "{{ 'a'.get('b') }}", "{{ {}.strip() }}",
    "{{ [1, 2][nothing:] }}", "{{ [1] < 2 }}", "{{ messages[0].content.nothing.x }}",
    # refused when parsing
    "{{ 1", "{% if true %}", "{% endif %}", "{% for x in [1] %}", "{% else %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 1) }}",
    "{% if %}{% endif %}", "{% for in x %}{% endfor %}", "{% set %}", "{% set true = 1 %}", "{{ 'abc }}", "{# never closed", "{{ a b }}",
    "{{ x | }}", "{{ x is }}", "{{ x. }}", "{{ x[] }}", "{% unknown %}", "{% if true %}{% endfor %}", "{{ 1 | nofilter }}", "{{ 1 is notest }}",
    "{{ ! }}", "{{ @ }}", "{{ 'a' | trim('a', 'b') }}", "{{ 'a' | trim(nochars='b') }}", "{% elif x %}", "{{ x is defined is defined }}",
    "{{ {'a' 1} }}", "{{ {1: } }}", "{{ f(a=1, 2) }}", "{{ not }}", "{{ a if }}", "{% for x in a if b else c %}{% endfor %}",
]


def variables(conversation, generate):
    messages = [{"role": role, "content": content} for role, content in CONVERSATIONS[conversation]]
    return {"messages": messages, "add_generation_prompt": generate, "bos_token": "<s>", "eos_token": "</s>",
            "tools": None, "documents": None}


def render(source, conversation, generate):
    case = {"template": source, "messages": CONVERSATIONS[conversation], "generate": generate}
    try:
        case["text"] = environment().from_string(source).render(**variables(conversation, generate))
    except (TemplateError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        case["error"] = str(error)
    return case


def main():
    cases = []
    for source in WHOLE.values():
        for conversation in CONVERSATIONS:
            for generate in (True, False):
                cases.append(render(source, conversation, generate))
    # Pieces are rendered one by one and, for the whitespace rules, all at once.
    pieces = PIECES.replace("\\\\", "\\")
    for line in pieces.split("\n"):
        piece = render(line, "chat", True)
        if "error" in piece:  # part of a construct over several lines
            print("only as part of the whole:", line)
        else:
            cases.append(piece)
    cases.append(render(pieces.replace("{{ (1 if true) + 1 }}", ""), "chat", True))
    cases.append(render(pieces.replace("\n", "\r\n"), "chat", True))
    errors = [render(source, "chat", True) for source in ERRORS]
    for case in errors:
        assert "error" in case, case
    for case in cases[len(WHOLE) * len(CONVERSATIONS) * 2:]:
        assert "error" not in case, case
    path = pathlib.Path(sys.argv[1]) / "chat_templates.json"
    path.write_text(json.dumps(cases + errors, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes", len(cases), "cases", len(errors), "errors")


if __name__ == "__main__":
    main()
