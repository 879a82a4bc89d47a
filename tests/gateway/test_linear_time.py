"""Every stage that a request or an answer passes takes time in proportion to its length, whatever it is made of."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import settings

from gateway.admission.context_check import least_tokens
from gateway.cache.exact.fingerprint import Outline, fingerprint
from gateway.cache.semantic.guards import text_guard
from gateway.cache.similarity.normal_form import normal_form
from gateway.cache.similarity.standalone import is_standalone
from gateway.cache.similarity.wording import Wording
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.chat.strict_json import JsonGuard
from gateway.completion.answer_end import has_first_token
from gateway.completion.stream_outcome import StreamOutcome
from gateway.deployments.affinity import prefix_of
from gateway.errors import InvalidRequest
from gateway.forwarding.logprob_filter import LogprobReader, events_without_odds
from gateway.forwarding.stream_head import WholeEvents
from gateway.forwarding.timing_events import TimingEvents
from gateway.routing.facts import RequestFacts
from gateway.routing.identity import key_of
from gateway.routing.prompt_of import prompt_of
from gateway.trimming.minify import minify_text
from gateway.trimming.passages import extract
from gateway.trimming.structure.layout import layout_of
from gateway.trimming.tools import cap_text
from gateway.trimming.trimmer import PolicyTrimmer
from gateway.upstreams.http1.sse import SseDecoder, SseProgress
from routing_policies.policy.document import Trim
from routing_policies.quality.features import features_of
from routing_policies.quality.preamble import PreambleMemory

SIZES: Final = (16 * 1024, 128 * 1024, 1024 * 1024)
STEP: Final = 8
MAX_RATIO: Final = 4 * STEP
"""Eight times as long may take eight times as much, on a machine that others use too; the square would be 64."""
TINY_S: Final = 0.02
"""Shorter times prove nothing about a ratio."""
MAX_S: Final = 10.0
SHORT: Final = 2 * 1024
"""Size whose time tells what does not depend on the length."""
SURE_RATIO: Final = 12
"""Largest growth of a cost over one STEP in size at which the largest size need not be measured.

A square's part grows by STEP², a linear part by STEP. After a growth of 12 the next one is at most 29, below MAX_RATIO.
"""

Fill = Callable[[int], str]

FILLS: Final[dict[str, Fill]] = {
    "letters": lambda size: "a" * size,
    "spaces": lambda size: "a" + " " * size + "b",
    "tabs and lines": lambda size: "a\t \t \n" * (size // 6),
    "indents": lambda size: ("\n" + " " * 999) * (size // 1000) + "x",
    "line feeds": lambda size: "\n" * size,
    "full stops": lambda size: "." * size + "x",
    "stops and quotes": lambda size: ".'" * (size // 2) + "x",
    "stops and spaces": lambda size: ". " * (size // 2) + "x",
    "backticks": lambda size: "`" * size,
    "open fences": lambda size: "```\n``\n" * (size // 7),
    "growing fences": lambda size: "".join("`" * width + "\n" for width in range(3, int((2 * size) ** 0.5))),
    "tildes": lambda size: "~" * (size // 2) + "\n" + "~" * (size // 2) + "x",
    "brackets": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "spread JSON": lambda size: "[" + "1 , " * (size // 4) + "1]",
    "JSON of quotes": lambda size: '["' + '\\"' * (size // 2) + '"]',
    "words": lambda size: "Some word, and another. " * (size // 24),
    "other words": lambda size: " ".join(f"w{number}" for number in range(size // 7)),
    "digits": lambda size: "1" * size,
    "numbers": lambda size: "1." * (size // 2),
    "marks": lambda size: "a" + "\u0323\u0301" * (size // 4),
    "falling marks": lambda size: "a" + "\u0301" * (size // 4) + "\u0323" * (size // 4),
    "wide letters": lambda size: "\u3042" * (size // 3),
    "apostrophes": lambda size: "a" + "'" * size,
    "open strings": lambda size: '"""\n' * (size // 4),
    "nearly JSON lines": lambda size: '{"a":1}\n' * (size // 8) + '{"a":x}\n',
    "a wide table": lambda size: "|a" * (size // 4) + "|\n" + "|x|y|\n" * (size // 12),
    "one long name": lambda size: json.dumps({"k" * (size // 2): [["bcd " * 60]] * (size // 512)}),
    "elements": lambda size: "<a>Some words. </a>\n" * (size // 21),
    "deep elements": lambda size: "<a>" * (size // 7) + "</a>" * (size // 7),
    "open elements": lambda size: "<a>\n" * (size // 4),
    "open tags": lambda size: "<a>\n" + '<a "' * (size // 4),
    "open comments": lambda size: "<a><!-- \n" * (size // 9),
    "void elements": lambda size: "<br>text here\n" * (size // 14),
    "empty elements": lambda size: "<x/>text here\n" * (size // 14),
    "unpaired elements": lambda size: "<a>\n" + "<p>One.\n<b></p>" * (size // 16) + "</b></a>",
    "open literals": lambda size: "<a>\n" + "<![CDATA[<!DOCTYPE a [<?" * (size // 24) + "</a>",
    "fences and elements": lambda size: "```\nx\n```\na\n<b>x</b>\ny\n" * (size // 24),
    "comments": lambda size: "<!-- a -->\nwords\n" * (size // 17),
    "labels and tags": lambda size: "a: <b>" * (size // 12) + " <b>" * (size // 8),
    "quoted fences": lambda size: "> ```x\n" * (size // 7) + "y\n> ```\n",
    "nested fences": lambda size: "".join(f"{'`' * n}\n" for n in range(int(size**0.5), 2, -1)) * 2,
    "inline code": lambda size: "`a. B` " * (size // 7),
    "orders": lambda size: "Please list what you know.\n" * (size // 27),
    "orders in code": lambda size: "x = 1;\n// Please explain it.\n" * (size // 30),
    "code without ends": lambda size: "".join(f"void f{n}() {{\n  go({n}, {'a' * 70});\n" for n in range(size // 100)),
    "brackets without ends": lambda size: "class A:\n" + "    def f(self):\n        return go(1,\n\n" * (size // 40),
    "JSON of many levels": lambda size: '{"a":1,"b":' * 300 + json.dumps(["abc def"] * (size // 11)) + "}" * 300,
    "elements of many levels": lambda size: "<a><b>x</b>" * (size // 15) + "</a>" * (size // 15),
    "options": lambda size: "\nA) " * (size // 4),
}


def parsed(*contents: str, **fields: Any) -> ChatRequest:
    messages = [{"role": "user", "content": content} for content in contents]
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages, **fields}).encode())


def called(count: int, result: str) -> ChatRequest:
    """Return an agent's loop with so many calls."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "what is w7?"}]
    for number in range(count):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} {result}"})
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode())


def hold_linear(make: Callable[[int], Any], work: Callable[[Any], object], label: str) -> None:
    """Assert that the time of `work(make(size))` grows in proportion to the size, over SIZES.

    A fixed cost is subtracted. A time that looks too long is measured three times and the shortest counts, since other
    processes use this machine. The nightly profile measures every size; other runs skip the largest where the growth
    between the smaller ones rules out a square.
    """
    before_s = added_s = 0.0
    is_nightly = settings.get_current_profile_name() == "nightly"
    gc.disable()  # as in a gateway that is busy
    try:
        work(make(SHORT))
        shortest_s = timed(work, make(SHORT))
        for size in SIZES:
            given = make(size)
            allowed_s = min(MAX_S, MAX_RATIO * max(before_s, TINY_S / STEP)) if before_s else MAX_S
            took_s = timed(work, given)
            for _ in range(2):
                if took_s >= allowed_s:
                    took_s = min(took_s, timed(work, given))
            assert took_s < allowed_s, (label, size, before_s, took_s)
            added_before_s, added_s = added_s, took_s - (before_s or shortest_s)
            if not is_nightly and added_before_s >= TINY_S / STEP and added_s <= SURE_RATIO * added_before_s:
                break
            before_s = took_s
    finally:
        gc.enable()


def test_the_square_of_a_length_is_found() -> None:
    with pytest.raises(AssertionError, match="square"):
        hold_linear(lambda size: size, lambda size: sum(range(size * size // 2000)), "square")


def timed(work: Callable[[Any], object], given: Any) -> float:
    """Return the thread's own time: what others do on this machine does not count."""
    began_at = time.thread_time()
    work(given)
    return time.thread_time() - began_at


RULE: Final = Trim(
    strategies=("minify", "dedupe", "cap_tool_outputs", "drop_old_turns", "extract_passages"), budget_tokens=500
)
TEXT_STAGES: Final[dict[str, Callable[[str], object]]] = {
    "minify": minify_text,
    "layout": layout_of,
    "cap": cap_text,
    "passages": lambda text: extract(text, "what is w7?", 1000),
    "standalone": is_standalone,
    "guard": text_guard,
}
SHORT_TEXT_STAGES: Final[dict[str, Callable[[str], object]]] = {"normal form": normal_form, "wording": Wording.of}
"""Given texts of a few hundred characters only: slower, and linear all the same."""


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS.keys())
@pytest.mark.parametrize("stage", TEXT_STAGES.values(), ids=TEXT_STAGES.keys())
def test_stages_of_a_text(stage: Callable[[str], object], fill: Fill) -> None:
    hold_linear(fill, stage, "text")


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS.keys())
@pytest.mark.parametrize("stage", SHORT_TEXT_STAGES.values(), ids=SHORT_TEXT_STAGES.keys())
def test_stages_of_a_short_text(stage: Callable[[str], object], fill: Fill) -> None:
    hold_linear(lambda size: fill(size // 16), stage, "text")


def shape(request: ChatRequest) -> object:
    facts = RequestFacts(request)
    prompt = prompt_of(request, "dev")
    return (
        *(Outline(request), fingerprint(request, scope=b"s", candidates=b"c", history="standalone")),
        *(prefix_of(request, "dev"), key_of(request, "dev", "conversation"), features_of(prompt)),
        *(PreambleMemory(("what is",)).strip(prompt.text), facts.fact("text"), facts.fact("turns")),
        least_tokens([(message["content"] or "").encode() for message in request.document["messages"]]),
    )


def trimmed(request: ChatRequest) -> object:
    return PolicyTrimmer().trim(request, RULE, 4.0)


REQUESTS: Final[dict[str, Callable[[int], ChatRequest]]] = {
    **{name: (lambda size, fill=fill: parsed("hello", fill(size))) for name, fill in FILLS.items()},  # type: ignore[misc]
    "many calls": lambda size: called(min(size // 1000, 2000), "abc def. " * 100),
    "many turns": lambda size: parsed(*["x" * (size // 4096)] * 4096),
    "a long question": lambda size: parsed(*["w " * (size // 2000)] * 500, "q" * (size // 2)),
    "one text again and again": lambda size: parsed(
        *[f"{number}\n\n" + "ab " * int(size**0.5 * 0.3) for number in range(int(size**0.5))], "what?"
    ),
    "chained blocks": lambda size: parsed(
        *[f"block {n} {'x' * 200}\n\nblock {n - 1} {'x' * 200}" for n in range(min(size // 430, 4000))], "what?"
    ),
}


@pytest.mark.parametrize("make", REQUESTS.values(), ids=REQUESTS.keys())
@pytest.mark.parametrize("work", [shape, trimmed])
def test_stages_of_a_request(work: Callable[[ChatRequest], object], make: Callable[[int], ChatRequest]) -> None:
    hold_linear(make, work, "request")


def body(rest: str, *, space: str = "") -> bytes:
    return f'{{"model"{space}:"auto","messages"{space}:[{{"role"{space}:"user","content":"hi"}}],{rest}}}'.encode()


def unknown(size: int, space: str) -> str:
    return ",".join(f'"k{number:06}"{space}:1' for number in range(size // 12))


BODIES: Final[dict[str, Callable[[int], bytes]]] = {
    "keys": lambda size: body(unknown(size, "")),
    "spaced keys": lambda size: body(unknown(size, " "), space=" "),
    "keys before tabs": lambda size: body(unknown(size, "\t"), space="\t"),
    "keys before lines": lambda size: body(unknown(size, "\r\n"), space="\n"),
    "escaped keys": lambda size: body(",".join(f'"\\u0061{number:06}" :1' for number in range(size // 17))),
    "long keys": lambda size: body(",".join(f'"{"k" * 1000}{number}" :1' for number in range(size // 1000))),
    "nested keys": lambda size: body(f'"x" :{{{unknown(size, " ")}}}', space=" "),
    "one key in many objects": lambda size: body('"x" :[' + ",".join(['{"a" :1}'] * (size // 9)) + "]", space=" "),
    "messages": lambda size: (
        '{"model" :"auto","messages":[' + ",".join(['{"role":"user","content" :"h"}'] * min(size // 31, 4096)) + "]}"
    ).encode(),
    "text like keys": lambda size: body('"x" :"' + '\\"role\\" :' * (size // 9) + '"', space=" "),
    "escapes": lambda size: body('"x":"' + "\\u0061" * (size // 6) + '"'),
    "lists": lambda size: body('"x":' + "[" + ",".join(["[]"] * (size // 3)) + "]"),
    "depth": lambda size: body('"x":' + "[" * (size // 2) + "]" * (size // 2)),
    "spaces": lambda size: body('"x"' + " " * size + ":1"),
    "long numbers": lambda size: body('"x":[' + ",".join(["1" * 4000] * (size // 4001)) + "]"),
    "a long number": lambda size: body('"x":' + "1" * size),
    "a long fraction": lambda size: body('"x":0.' + "1" * size),
    "stops": lambda size: body('"stop":[' + ",".join(['"a"'] * (size // 4)) + "]"),
    "logit bias": lambda size: body('"logit_bias" :{' + ",".join(f'"{n}" :1' for n in range(size // 10)) + "}"),
}


def read(data: bytes) -> None:
    for parse in (ChatRequestParser().parse, JsonGuard(()).decode):
        try:
            parse(data)
        except InvalidRequest:
            continue


@pytest.mark.parametrize("number", ["9e-309", "1e-320", "-1.7976931348623157e308", "0.1", "1e5", "-0.0", "2.5E+3"])
@pytest.mark.parametrize("num", [1, 1000])
def test_floats_are_the_same_in_short_and_long_bodies(number: str, num: int) -> None:
    found = ChatRequestParser().parse(body(f'"x":[{",".join([number] * num)}]')).document["x"]
    assert [repr(value) for value in found] == [repr(float(number))] * num


@pytest.mark.parametrize("number", ["1e309", "-1e400", "1.", "01.5", "NaN", "Infinity", "1_0.5", "1e"])
@pytest.mark.parametrize("filler", ["", "x" * 2000])
def test_numbers_that_are_none_are_refused_in_short_and_long_bodies(number: str, filler: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ChatRequestParser().parse(body(f'"y":"{filler}","x":{number}'))
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize("num", [199_990, 200_010])
@pytest.mark.parametrize("text", ["", "[{", '\\"[', "\\\\"])
def test_containers_are_counted_outside_strings(num: int, text: str) -> None:
    data = body(f'"x":"{text * 100_000}","y":[' + ",".join(["[]"] * num) + "]")
    if num < 200_000:
        ChatRequestParser().parse(data)
        return
    with pytest.raises(InvalidRequest, match="more than 200000 values"):
        ChatRequestParser().parse(data)


@pytest.mark.parametrize("make", BODIES.values(), ids=BODIES.keys())
def test_reading_a_body(make: Callable[[int], bytes]) -> None:
    """Bad input row 24; the admin listener reads with the same guard."""
    hold_linear(make, read, "body")


@pytest.mark.parametrize("space", ["", " ", "\n", "\t \r\n"])
@pytest.mark.parametrize("place", [0, 2500, 4999])
def test_a_repeated_key_among_thousands_is_found(space: str, place: int) -> None:
    names = [f"k{number:06}" for number in range(5000)]
    rest = ",".join(f'"{name}"{space}:1' for name in [*names, names[place]])
    with pytest.raises(InvalidRequest, match=f"'{names[place]}' stands more than once"):
        ChatRequestParser().parse(body(rest, space=space))
    once = ",".join(f'"{name}"{space}:1' for name in names)
    assert len(ChatRequestParser().parse(body(once, space=space)).document) == 5002


@pytest.mark.parametrize(
    "rest", ['"a\\u002db":1,"a-b":2', '"\\u00e9":1,"\u00e9":2', '"a\\/b":1,"a/b":2', '"k9":1,"k\\u0039":2']
)
def test_a_repeated_key_in_another_spelling_is_found(rest: str) -> None:
    with pytest.raises(InvalidRequest, match="stands more than once"):
        ChatRequestParser().parse(body(rest))


def wide_message(size: int, rest: str = "") -> bytes:
    message = f'{{"role":"user","content":"hi",{unknown(size, "")}}}'
    return f'{{"model":"auto","messages":[{message}{rest}]}}'.encode()


WIDE_REQUESTS: Final[dict[str, Callable[[int], bytes]]] = {
    "keys of a request": lambda size: body(unknown(size, "")),
    "keys of a message": wide_message,
    "keys of an earlier message": lambda size: wide_message(size, ',{"role":"user","content":"x"}'),
    "keys of a schema": lambda size: body(f'"x":{{"role":1,"content":2,{unknown(size, "")}}}'),
    "keys of a tool": lambda size: body(
        '"tools":[{"type":"function","function":{"name":"f","parameters":{"z":1,"y":2,' + unknown(size, "") + "}}}]"
    ),
}


@pytest.mark.parametrize("make", WIDE_REQUESTS.values(), ids=WIDE_REQUESTS.keys())
def test_stages_of_a_request_with_wide_objects(make: Callable[[int], bytes]) -> None:
    """Bad input row 24."""
    hold_linear(lambda size: ChatRequestParser().parse(make(min(size, 2_000_000))), shape, "request")


def fed(make: Callable[[], Any], piece_bytes: int) -> Callable[[bytes], None]:
    def work(stream: bytes) -> None:
        reader = make()
        for begin in range(0, len(stream), piece_bytes):
            reader(stream[begin : begin + piece_bytes])

    return work


STREAMS: Final[dict[str, Callable[[int], bytes]]] = {
    "a line that never ends": lambda size: b"data: " + b"x" * size,
    "an event that never ends": lambda size: b"data: x\n" * (size // 8),
    "comments": lambda size: b'data: {"a":1}\n\n' + b": x\n\n" * (size // 5),
    "line feeds": lambda size: b"\n" * size,
    "carriage returns": lambda size: b"\r\n" * (size // 2),
    "small events": lambda size: b'data: {"choices":[]}\n\n' * (size // 22),
    "events of braces": lambda size: (b"data: {" + b"}" * 998 + b"x\n\n") * (size // 1000),
}
READERS: Final[dict[str, Callable[[], Callable[[bytes], object]]]] = {
    "whole events": lambda: WholeEvents().feed,
    "timing events": lambda: TimingEvents().feed,
    "stream outcome": lambda: StreamOutcome().feed,
    "odds": lambda: LogprobReader().feed,
    "decoder": lambda: SseDecoder(64 * 1024 * 1024).feed,
    "progress": SseProgress,
    "first token": lambda: has_first_token,
    "without odds": lambda: events_without_odds,
}


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_reading_a_stream(reader: Callable[[], Callable[[bytes], object]], make: Callable[[int], bytes]) -> None:
    hold_linear(make, fed(reader, 64), "stream")
