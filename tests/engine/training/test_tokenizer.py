"""The tokenizer of the bundled models and its chat template."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.bundled import model_dir
from engine.training import tokenizer
from engine.training.batches import render_conversation
from engine.training.data.generator import MIXES, stream

TOKENIZER = tokenizer.read_tokenizer(model_dir("small"))


def render_template(messages: list[dict[str, Any]], **options: Any) -> str:
    environment = ImmutableSandboxedEnvironment()
    return environment.from_string(tokenizer.CHAT_TEMPLATE).render(messages=messages, **options)


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


def test_every_byte_is_a_token() -> None:
    text = "\x00\x7f\u0080\u07ff\uffff\U0010ffff"
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == text


def test_every_digit_is_a_token_of_its_own() -> None:
    assert TOKENIZER.encode("2026+19").tokens == ["2", "0", "2", "6", "+", "1", "9"]


def test_both_models_share_the_tokenizer() -> None:
    small, large = ((model_dir(size) / "tokenizer.json").read_bytes() for size in ("small", "large"))
    assert small == large
    assert TOKENIZER.get_vocab_size() == tokenizer.VOCAB_SIZE


def test_the_vocabulary_is_reproducible() -> None:
    assert tokenizer.train_tokenizer(2000).to_str() == tokenizer.train_tokenizer(2000).to_str()


@pytest.mark.parametrize("is_trimming", [True, False])
def test_the_chat_template_renders_what_training_saw(is_trimming: bool) -> None:
    environment = ImmutableSandboxedEnvironment(trim_blocks=is_trimming, lstrip_blocks=is_trimming)
    template = environment.from_string(tokenizer.CHAT_TEMPLATE)
    for example in itertools.islice(stream(5, "train", MIXES["large"]), 100):
        rendered = template.render(messages=example.messages, add_generation_prompt=True)
        assert rendered == render_conversation(example, with_answer=False)


def test_the_chat_template_renders_tools_calls_and_results() -> None:
    call = {"function": {"name": "price", "arguments": {"item": "tide mug"}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "price?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "12"},
    ]
    text = render_template(messages, tools=[{"type": "function", "function": {"name": "price"}}])
    assert '<tools>\n{"function": {"name": "price"}, "type": "function"}\n</tools>' in text
    assert '<tool_call>\n{"name": "price", "arguments": {"item": "tide mug"}}\n</tool_call><|im_end|>' in text
    assert "<tool_response>\n12\n</tool_response><|im_end|>" in text
