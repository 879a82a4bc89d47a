"""Templates written as published models write them render here exactly as `transformers` renders them."""

# ruff: noqa: E501  (templates have the long lines of published ones)
from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template

from engine.frontend.request.requests import Message
from engine.frontend.request.tools import FunctionCall, FunctionDefinition, Tool, ToolCall
from engine.frontend.text.chat_template import ChatTemplate, load_chat_template
from engine.frontend.text.sandbox import BoundedEnvironment, TemplateError, render
from engine.frontend.text.tokenizer import load_tokenizer

LLAMA = """
{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = strftime_now("%Y") %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'].strip() %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday: " + date_string + "\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'].strip() + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception("only one call") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name.replace('-', '_') + '", "parameters": ' }}{{- call.arguments | tojson }}{{- "}" }}
    {%- elif message.role == "tool" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""
QWEN = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(
        message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + reasoning.strip('\\n').replace('\\n\\n', '\\n') + '\\n</think>\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.function.name }}{{- '", "arguments": ' }}
            {%- if tool_call.function.arguments is string %}{{- tool_call.function.arguments }}
            {%- else %}{{- tool_call.function.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- elif not (loop.first and tools) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
GEMMA = """
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}{%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}{%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{%- if item['type'] == 'text' -%}{{ item['text'].strip() }}{%- endif -%}{%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""
MISTRAL = """
{%- macro shown(value) -%}
    {%- if value is mapping -%}
        {%- for key, inner in value.items() -%}{{ key.upper().replace('_', ' ') }}: {{ shown(inner) }}{{ ", " if not loop.last }}{%- endfor -%}
    {%- else -%}{{ value | string | trim }}{%- endif -%}
{%- endmacro -%}
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role in ["user", "system"] %}
        {{- "[INST] " + ' '.join(message.content.split()) + "[/INST]" }}
    {%- elif message.role == "tool" %}
        {{- "[TOOL_RESULTS]" + message.content|string + "[/TOOL_RESULTS]" }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS][" }}
        {%- for call in message.tool_calls %}{{- call.function.name.replace('f', 'F') }} {{ shown(call.function.arguments) }}{{- ", " if not loop.last else "]" + eos_token }}{%- endfor %}
    {%- else %}
        {{- " " + message.content.lstrip().rstrip() + eos_token }}
    {%- endif %}
{%- endfor %}
"""
SMOL = """
{%- block system -%}
{%- if messages[0].role == 'system' -%}
    {%- set custom = messages[0].content.replace('/no_think', '').replace('/think', '').rstrip() -%}
    {{- '<|im_start|>system\\n' + custom.replace('  ', ' ') + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endblock -%}
{%- block turns -%}
{%- for message in messages if message.role != 'system' -%}
    {%- set content = message.content if message.content is string else '' -%}
    {%- generation -%}{{- '<|im_start|>' ~ message.role ~ '\\n' ~ content.replace('<think>', '').split('</think>') | last | trim ~ '<|im_end|>\\n' -}}{%- endgeneration -%}
    {%- if loop.index0 > 20 -%}{%- break -%}{%- endif -%}
{%- endfor -%}
{%- endblock -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
TEMPLATES = {"llama": LLAMA, "qwen": QWEN, "gemma": GEMMA, "mistral": MISTRAL, "smol": SMOL}
CALLS = [ToolCall(id="c1", function=FunctionCall(name="get-f", arguments='{"a_b": {"c": 1, "d": "é<"}}'))]
CONVERSATIONS: dict[str, list[Message]] = {
    "one turn": [Message("user", "  hi there \n")],
    "system": [Message("system", " be  kind /no_think "), Message("user", "hi"), Message("assistant", " yes "), Message("user", "")],
    "reasoning": [Message("user", "q"), Message("assistant", "<think>\nhm\n\nso\n</think>\n\n  it is 4"), Message("user", "why?")],
    "calls": [
        Message("user", "q"),
        Message("assistant", "", tool_calls=CALLS),
        Message("tool", "4 & <5>", tool_call_id="c1"),
        Message("assistant", "<think>got it</think>\n4"),
        Message("user", "Ünicode ✓"),
    ],
}  # fmt: skip
TOOLS = [
    Tool(type="function", function=FunctionDefinition(name="f", description='say "é"', parameters={"type": "object"}))
]


@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_prompts_are_those_of_transformers(source: str, conversation: list[Message], tools: list[Tool]) -> None:
    special_tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    ours = ChatTemplate(source, special_tokens, ["<|im_start|>", "[INST]"], nonce=lambda: "0" * 32)
    turns: list[dict[str, Any]] = []
    for message in conversation:
        turn: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.tool_calls:
            turn["tool_calls"] = [call.as_json() for call in message.tool_calls]
        turns.append(turn)
    shown = [tool.as_json() for tool in tools]
    expected = _compile_jinja_template(source).render(
        messages=turns, tools=shown or None, documents=None, add_generation_prompt=True, **special_tokens
    )
    assert "".join(part.text for part in ours.segments(conversation, shown)) == expected


IN_PLACES = {
    "loop": "{{% for m in messages %}}{{{{ {0} }}}}{{% endfor %}}",
    "loop in a loop": "{{% for n in 'ab' %}}{{% for m in messages %}}{{{{ {0} }}}}{{% endfor %}}{{% endfor %}}",
    "condition of a loop": "{{% for m in messages if {0} %}}{{{{ m.role }}}}{{% endfor %}}",
    "block": "{{% block b %}}{{% set m = messages[0] %}}{{{{ {0} }}}}{{% endblock %}}",
    "loop in a block": "{{% block b %}}{{% for m in messages %}}{{{{ {0} }}}}{{% endfor %}}{{% endblock %}}",
    "macro": "{{% macro f(m) %}}{{{{ {0} }}}}{{% endmacro %}}{{% for m in messages %}}{{{{ f(m) }}}}{{% endfor %}}",
    "capture": "{{% for m in messages %}}{{% set x %}}{{{{ {0} }}}}{{% endset %}}{{{{ x }}}}{{% endfor %}}",
    "filter": "{{% for m in messages %}}{{% filter upper %}}{{{{ {0} }}}}{{% endfilter %}}{{% endfor %}}",
    "outside": "{{% set m = messages[1] %}}{{{{ {0} }}}}",
}
CALLED = [
    "m.content.replace('a', 'bb')",
    "m['content'].replace('a', '', 1).strip()",
    "', '.join([m.content, 'x'])",
    "''.join(m.content.split('a'))",
    "m.content.strip('a ').split('b')[-1].lstrip('\\n')",
    "m.content.startswith(('a', ' a'))",
    "m.items() | list | length",
    "m.get('content', '').rsplit(' ', 1)[0].title()",
    "(m.content | string).partition('a')[2] ~ m.content.find('b')",
    "m.content.splitlines() | map('replace', 'a', 'c') | join('+')",
]


@pytest.mark.parametrize("expression", CALLED)
@pytest.mark.parametrize("place", IN_PLACES.values(), ids=IN_PLACES.keys())
def test_methods_work_wherever_they_are_called(place: str, expression: str) -> None:
    source = place.format(expression)
    messages = [{"role": "user", "content": " a banana\nb "}, {"role": "assistant", "content": "abc"}]
    bounded = BoundedEnvironment(datetime.datetime.now).bounded_template(source)
    expected = _compile_jinja_template(source).render(messages=messages)
    assert render(bounded, {"messages": messages}, time.monotonic) == expected


@pytest.mark.parametrize("indent", ["2", "'\\t'", "'  '", "''", "0", "none"])
def test_json_may_be_indented_by_a_number_or_by_text(indent: str) -> None:
    source = f"{{{{ {{'a': [1, {{'b': 'é'}}]}} | tojson(indent={indent}) }}}}"
    bounded = BoundedEnvironment(datetime.datetime.now).bounded_template(source)
    assert render(bounded, {}, time.monotonic) == _compile_jinja_template(source).render()


def test_what_a_template_refuses_is_reported() -> None:
    ours = ChatTemplate(LLAMA, {"bos_token": ""}, [], nonce=lambda: "0" * 32)
    with pytest.raises(TemplateError, match="only one call"):
        ours.segments([Message("user", "x"), Message("assistant", "", tool_calls=CALLS * 2)])


WORDS = {"<unk>": 0, **{text: i for i, text in enumerate(("hi", "sys", "tool", "a", "b", " ", "\n", "x"), start=10)}}
ADDED = [
    {"id": 1, "content": "<s>", "special": True},
    {"id": 2, "content": "</s>", "special": True},
    {"id": 3, "content": "<|end|>", "special": True, "rstrip": True},
    {"id": 4, "content": "<mask>", "special": True, "lstrip": True},
    {"id": 5, "content": "<tool_call>", "special": False},
]
ODD_TEMPLATES = {
    "its own start token": "{{ bos_token }}{% for m in messages %}{{ m.content }}<|end|>\n{% endfor %}",
    "a start token twice": "{{ bos_token }}{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}",
    "no start token": "{% for m in messages %}{{ m.content }} <mask> a<|end|>  \n{% endfor %}<tool_call>",
    "date": "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}<|end|>{% endgeneration %}{% endfor %}",
    "unknown names": "{{ unknown_name }}{% if other is defined %}x{% endif %}{{ messages[0].content }}",
    "no end token": "{{ pad_token }}{{ messages[0].content }}{{ sep_token }}",
}


def write_tokenizer(folder: Path, template: Any) -> None:
    rest = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    start: list[dict[str, Any]] = [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    spec = {
        "version": "1.0",
        "added_tokens": [rest | token for token in ADDED],
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"\w+|."}, "behavior": "Isolated", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": start,
            "pair": [*start, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "<unk>"},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": {"__type": "AddedToken", "content": "<s>", **rest},
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": None,
        "chat_template": template,
        "add_bos_token": True,
    }
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("text", ["hi", " hi \n", "a  b"])
@pytest.mark.parametrize(
    "template",
    [
        *ODD_TEMPLATES.values(),
        [
            {"name": "default", "template": "{{ messages[0].content }}"},
            {"name": "tool_use", "template": "tool {{ tools[0].function.name }}{{ messages[0].content }}"},
            {"name": "rag", "template": "x"},
        ],
    ],
    ids=[*ODD_TEMPLATES, "several"],
)
def test_tokens_are_those_of_transformers(template: Any, text: str, tools: list[Tool], tmp_path: Path) -> None:
    write_tokenizer(tmp_path, template)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    shown: list[Any] = [tool.as_json() for tool in tools]
    expected = theirs.apply_chat_template(
        [{"role": "user", "content": text}], tools=shown or None, add_generation_prompt=True, return_dict=False
    )

    tokenizer = load_tokenizer(tmp_path)
    ours = load_chat_template(tmp_path, tokenizer.special_texts, lambda: "0" * 32)

    assert ours is not None
    assert tokenizer.encode_segments(ours.segments([Message("user", text)], shown)) == expected
