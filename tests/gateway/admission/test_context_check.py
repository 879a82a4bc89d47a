"""The bound that refuses prompts which fit nowhere, and nothing else."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.admission.context_check import (
    MAX_BYTES_PER_TOKEN,
    MAX_EMOJI_BYTES_PER_TOKEN,
    MAX_LETTERS_PER_TOKEN,
    least_tokens,
    may_be_hopeless,
    refuse_hopeless,
)
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.errors import InvalidRequest
from tests.gateway.stack import chat, policy_text, running

CONTEXT = 10
FITS_PERHAPS = CONTEXT * MAX_BYTES_PER_TOKEN


def parsed(*contents: Any) -> ChatRequest:
    messages = [{"role": "user", "content": content} for content in contents]
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode())


@pytest.mark.parametrize(
    "contents",
    [
        ("-" * (FITS_PERHAPS + MAX_BYTES_PER_TOKEN),),
        ("-" * FITS_PERHAPS, "=" * MAX_BYTES_PER_TOKEN),
        ("\u00e9" * (FITS_PERHAPS // 2 + MAX_BYTES_PER_TOKEN),),
        ([{"type": "text", "text": "-" * (FITS_PERHAPS + MAX_BYTES_PER_TOKEN)}],),
        ("x" * (CONTEXT + 1) * MAX_LETTERS_PER_TOKEN,),
        ("\u597d\ud55c" * ((CONTEXT + 1) * MAX_LETTERS_PER_TOKEN // 6 + 1),),
        ("\U0001f600" * ((CONTEXT + 1) * MAX_EMOJI_BYTES_PER_TOKEN // 4),),
        ("?",) * (CONTEXT + 1),
    ],
)
def test_what_no_tokenizer_makes_short_enough_is_refused(contents: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequest, match="largest context here, 10 tokens") as caught:
        refuse_hopeless(parsed(*contents), CONTEXT)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


@pytest.mark.parametrize(
    "contents",
    [
        ("-" * FITS_PERHAPS,),
        ("x" * CONTEXT * MAX_LETTERS_PER_TOKEN,),
        ("\u597d" * (CONTEXT * MAX_LETTERS_PER_TOKEN // 3),),
        ("\U0001f600" * (CONTEXT * MAX_EMOJI_BYTES_PER_TOKEN // 4),),
        ("?",) * CONTEXT,
        ("\x01" * FITS_PERHAPS,),  # six bytes of JSON each, one of text
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}}],),
    ],
)
def test_what_may_fit_is_left_to_the_engine(contents: tuple[Any, ...]) -> None:
    refuse_hopeless(parsed(*contents), CONTEXT)


def test_without_a_known_context_nothing_is_refused() -> None:
    refuse_hopeless(parsed("x" * 1_000_000), None)


async def test_the_largest_context_of_the_route_counts_and_nothing_goes_upstream(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace("model: tiny", "model: tiny, context_tokens: 10")
    async with running(tmp_path, policy=text.replace("model: big", "model: big, context_tokens: 20")) as stack:
        body = chat("auto", messages=[{"role": "user", "content": "x" * 15 * MAX_LETTERS_PER_TOKEN}])
        assert (await stack.call(body)).status == 200  # the engine will know
        refused = await stack.call({**body, "model": "solo"})

        assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
        assert "x-penstock-error-code" in refused.headers
        assert len(stack.small.received) == 1


async def test_a_candidate_of_unknown_context_may_take_anything(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace("model: tiny", "model: tiny, context_tokens: 10")
    async with running(tmp_path, policy=text) as stack:
        body = chat("auto", messages=[{"role": "user", "content": "x" * 1_000_000}])
        assert (await stack.call(body)).status == 200


_LONG_WORDS = (
    "internationalization responsibilities characteristics environmental implementation unfortunately "
    "straightforward recommendations notwithstanding telecommunications pharmaceutical administrators "
    "rawdownloadcloneembedreportprint useRalativeImagePath getApplicationContext setOnClickListener "
    "comprehensively disproportionate interdisciplinary constitutionality electromagnetic thermodynamics "
    "neuropsychological extraterritorial counterintelligence misrepresentation institutionalized photosynthesis "
    "ประเทศไทย "
    "中华人民共和国 действительно "
    "διαφορετικά"
)
LONG_WORDS = tuple(_LONG_WORDS.split())
RUNS = (" " * 128, "-" * 128, "=" * 128, "*" * 128, "/" * 64, "#" * 64, "\n" * 64, "\t" * 32, "0" * 64, "a" * 64)


def tokens_of_words(rng: random.Random) -> str:
    return " " + rng.choice(LONG_WORDS)


def tokens_of_runs(rng: random.Random) -> str:
    return rng.choice(RUNS)


def tokens_without_blanks(rng: random.Random) -> str:
    return rng.choice(LONG_WORDS)


def tokens_of_phrases(rng: random.Random) -> str:
    """Of a tokenizer whose tokens span words."""
    return " as a result of" if rng.random() < 0.5 else " for the first time"


def tokens_mixed(rng: random.Random) -> str:
    return rng.choice((tokens_of_words, tokens_of_runs, tokens_without_blanks, tokens_of_phrases))(rng)


MAKERS = [tokens_of_words, tokens_of_runs, tokens_without_blanks, tokens_of_phrases, tokens_mixed]


@pytest.mark.parametrize("context", [16, 512, 8192, 131_072])
@pytest.mark.parametrize("token", MAKERS)
def test_a_prompt_of_the_longest_tokens_that_fills_a_context_passes(
    token: Callable[[random.Random], str], context: int
) -> None:
    """More than any text has: each of its tokens is among the longest of some vocabulary."""
    rng = random.Random(context)
    text = "".join(token(rng) for _ in range(context))
    refuse_hopeless(parsed(text), context)
    refuse_hopeless(parsed(text[: len(text) // 3], [{"type": "text", "text": text[len(text) // 3 :]}]), context)


ENGLISH = (
    "A gateway that does not tokenise cannot know how long a prompt is, but it can know that a prompt is far too "
    "long. It counts words, it packs what they say, and it sends on whatever may still fit, because the engine "
    "behind it counts exactly and says so in the very same words. "
)
HOPELESS: dict[str, Callable[[int], str]] = {
    "one word again and again": lambda context: "hello " * (5 * context),
    "one letter again and again": lambda context: "a " * (5 * context),
    "lines of words": lambda context: "yes\n" * (5 * context),
    "numbers": lambda context: " ".join(map(str, range(5 * context))),
    "English": lambda context: ENGLISH * (8 * context // len(ENGLISH.split())),
    "prose of other words": lambda context: " ".join(
        "".join(random.Random(number).choices("etaoinshrdlu", k=6)) for number in range(5 * context)
    ),
    "base64": lambda context: base64.b64encode(random.Random(1).randbytes(20 * context)).decode(),
    "hexadecimal digits": lambda context: random.Random(1).randbytes(20 * context).hex(),
    "Chinese without blanks": lambda context: "".join(
        map(chr, random.Random(2).choices(range(0x4E00, 0x6E00), k=32 * context))
    ),
    "one word without blanks": lambda context: "hello" * (14 * context),
    "emoji": lambda context: "\U0001f600" * (9 * context),
    "families": lambda context: "\U0001f468\u200d\U0001f469\u200d\U0001f467" * (4 * context),
    "one sign for a whole context of the longest tokens, and more": lambda context: "-" * (129 * context),
}


@pytest.mark.parametrize("context", [512, 8192, 32_768])
@pytest.mark.parametrize("make", HOPELESS.values(), ids=HOPELESS.keys())
def test_a_prompt_of_many_contexts_is_refused(make: Callable[[int], str], context: int) -> None:
    """Bad input row 29."""
    request = parsed("What is this?", make(context))
    with pytest.raises(InvalidRequest, match=f"largest context here, {context} tokens") as caught:
        refuse_hopeless(request, context)
    assert caught.value.code == "context_length_exceeded"


def test_a_short_prompt_costs_one_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.admission.context_check.least_tokens", None)
    refuse_hopeless(parsed("word " * 800), 512)
    assert not may_be_hopeless(parsed("word " * 800), 512)
    assert may_be_hopeless(parsed("word " * 1000), 512)
    assert not may_be_hopeless(parsed("word " * 1000), None)


@pytest.mark.parametrize(
    "fields", [{"truncate_prompt_tokens": 100}, {"truncation": "auto"}, {"transforms": ["middle-out"]}]
)
def test_a_prompt_that_its_upstream_is_to_cut_is_left_to_it(fields: dict[str, Any]) -> None:
    document = {"model": "auto", "messages": [{"role": "user", "content": "hello " * 1000}], **fields}
    refuse_hopeless(ChatRequestParser().parse(json.dumps(document).encode()), 10)


def test_what_a_template_leaves_out_does_not_count() -> None:
    thoughts = "<think>" + "hm and hm " * 10_000 + "</think> Yes."
    messages = [
        {"role": "user", "content": " " * 100_000 + "hi" + "\n" * 100_000},
        {"role": "assistant", "content": thoughts},
        {"role": "user", "content": "Why?"},
    ]
    refuse_hopeless(ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode()), 64)
    messages[1] = {**messages[1], "role": "user"}
    with pytest.raises(InvalidRequest):
        refuse_hopeless(ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode()), 64)


def test_arguments_of_tool_calls_are_part_of_the_prompt() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": json.dumps(list(range(400)))}}
    messages = [
        {"role": "user", "content": "Add these."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "79800"},
    ]
    request = ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode())
    refuse_hopeless(request, 400)
    with pytest.raises(InvalidRequest):
        refuse_hopeless(request, 64)


def test_descriptions_of_tools_are_part_of_the_prompt_unless_none_may_be_called() -> None:
    text = "the day of the week in words, " * 100
    flat = {"name": "f", "description": text, "parameters": {"type": "object", "properties": {}}}
    deep = {"name": "g", "parameters": {"properties": {"a": {"anyOf": [{"type": "string", "description": text}]}}}}
    for function in (flat, deep):
        tools = [{"type": "function", "function": function}]
        document = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], "tools": tools}
        with pytest.raises(InvalidRequest):
            refuse_hopeless(ChatRequestParser().parse(json.dumps(document).encode()), 64)
        document["tool_choice"] = "none"
        refuse_hopeless(ChatRequestParser().parse(json.dumps(document).encode()), 64)


def test_every_count_is_a_lower_bound_of_its_own() -> None:
    assert least_tokens([]) == 0
    assert least_tokens([b"a b c d"]) == 1
    assert least_tokens([b"a b", b"c d"]) == 1
    assert least_tokens([b"- - - - - - - -"]) <= 1  # signs may be one token with the blanks between
    assert least_tokens([b"-" * 1280]) == least_tokens([b"x" * 640]) == 10


async def test_trimming_comes_first_and_may_make_a_hopeless_prompt_fit(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace("model: tiny", "model: tiny, context_tokens: 512")
    text = text.replace("model: big", "model: big, context_tokens: 512")
    rule = "    trim: {budget_tokens: 256, strategies: [drop_old_turns]}\n    select:"
    long = [{"role": "user", "content": "hello " * 4000}, {"role": "assistant", "content": "Yes."}]
    body = chat(messages=[*long, {"role": "user", "content": "And now?"}])
    for policy, status in ((text, 400), (text.replace("    select:", rule, 1), 200)):
        async with running(tmp_path, policy=policy) as stack:
            reply = await stack.call(body)
            assert reply.status == status
            assert len(stack.small.received) == (status == 200)
