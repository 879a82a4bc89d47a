"""Long JSON is decoded in slices, with the result and the refusals of one decoding of the whole."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat import sliced_json
from gateway.chat.json_faults import MAX_DEPTH, MAX_VALUES
from gateway.chat.request import ChatRequestParser
from gateway.chat.sliced_json import MAX_ITEMS, LongObject
from gateway.chat.strict_json import LONG_BYTES
from gateway.errors import InvalidRequest

NAMES = frozenset({"model", "messages"})
READ = {"messages": 4096, "messages[]": MAX_VALUES}
SPACES = st.text(alphabet=" \t\n\r", max_size=2)
TEXTS = st.text(alphabet=st.sampled_from('ab"\\/{}[]:,\u00e9\u0000\U0001f600 \n'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=40,
)
OBJECTS = st.dictionaries(TEXTS | st.sampled_from(sorted(NAMES)), VALUES, max_size=8)


@pytest.fixture(params=[1, 16, 64 * 1024])
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_json, "SLICE_BYTES", request.param)


def read(body: bytes, **limits: int) -> LongObject:
    return LongObject(body, names=NAMES, limits=limits)


def as_read(value: Any) -> Any:
    """With what was left as it was written."""
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    if isinstance(value, dict):
        return {name: as_read(child) for name, child in value.items()}
    return [as_read(child) for child in value] if isinstance(value, list) else value


def fault(body: bytes, **limits: int) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(body, **limits)
    return caught.value


@given(OBJECTS, st.booleans(), st.sampled_from([(", ", ": "), (",", ":"), ("\n,\t", " :\r")]))
@pytest.mark.usefixtures("slices")
def test_the_result_is_that_of_one_decoding(document: dict[str, Any], is_ascii: bool, marks: tuple[str, str]) -> None:
    body = f" {json.dumps(document, ensure_ascii=is_ascii, separators=marks)}\n".encode()
    found = read(body)
    assert found.document == document
    edited, _ = found.spans.edited(body, {"model": "other"}, {"messages"})
    expected = {name: value for name, value in document.items() if name != "messages"}
    assert json.loads(edited) == {**expected, "model": "other"}


@given(OBJECTS, st.data())
@pytest.mark.usefixtures("slices")
def test_damaged_json_is_refused_where_one_decoding_refuses_it(document: dict[str, Any], data: st.DataObject) -> None:
    body = json.dumps(document).encode()
    at = data.draw(st.integers(0, len(body)))
    end = at + data.draw(st.integers(0, 2))
    damaged = (
        body[:at]
        + data.draw(st.sampled_from([b"", b",", b"]", b"}", b"[", b"{", b'"', b":", b"1", b" ", b"\xff"]))
        + body[end:]
    )
    try:
        expected = json.loads(damaged, object_pairs_hook=once)
        msgspec.json.decode(damaged)
    except (ValueError, msgspec.DecodeError):
        expected = None
    if isinstance(expected, dict):
        assert read(damaged).document == expected
    else:
        assert fault(damaged).code == "invalid_json"


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,}',
        '{"a":[1,]}',
        '{"a":[,1]}',
        '{"a":[1,,2]}',
        '{,"a":1}',
        '{"a" 1}',
        '{"a":}',
        '{"a":1 2}',
        '{"a":[1 2]}',
        '{"a":1}}',
        '{"a":1',
        '{"a":[1}',
        '{"a":{1]}',
        '{"a":"b',
        '{"a":"\\',
        '{"a',
        "{",
        '{"a":1} x',
        "{a:1}",
        '{"a":NaN}',
        '{"a":1e999}',
        '{"a":[1e999]}',
        '{"a":01}',
        '{"a":"\\ud800"}',
        '{"a":1,"\\u0061":2}',
        '{"a":{"b":1,"b" :2}}',
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    assert fault(text.encode()).code == "invalid_json"
    assert fault(text.replace("1", "1" + " " * 70_000, 1).encode()).code == "invalid_json"


@pytest.mark.parametrize(
    ("text", "reason"), [("[1]", "must be a JSON object"), ('"a"', "must be a JSON object"), ("x", "not valid")]
)
def test_what_is_no_object_is_refused(text: str, reason: str) -> None:
    assert reason in fault(text.encode()).message


def test_a_fault_is_placed_in_the_body() -> None:
    body = b'{"a":"' + b"x" * 100_000 + b'","b":[1,2,tru]}'
    assert f"(byte {body.index(b'tru') + 4})" in fault(body).message


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("far", [0, 100_000])
def test_a_repeated_key_is_found_however_far_apart(far: int) -> None:
    filler = ",".join(f'"k{number}":"{"x" * 50}"' for number in range(far // 50))
    error = fault(f'{{"own":{{"name":1,{filler}{"," if far else ""}"name":2}}}}'.encode())
    assert (error.param, error.code) == ("name", "invalid_json")


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("num", [MAX_DEPTH - 1, MAX_DEPTH, 100_000])
def test_depth_is_bounded(opening: str, num: int) -> None:
    body = f'{{"own":{opening * num}1{("]" if opening == "[" else "}") * num}}}'.encode()
    if num < MAX_DEPTH:
        assert as_read(read(body).document) == json.loads(body)
    else:
        assert "nested deeper" in fault(body).message


@pytest.mark.parametrize("item", ["1", '"a"', "1.5", "1e-320", "-0.0", "null"])
def test_a_long_list_that_nobody_reads_stays_as_it_was_written(item: str) -> None:
    text = f"[ {','.join([item] * 100_000)}]"
    found = read(f'{{"own":{text},"messages":[{{"own":{text}}}]}}'.encode(), **READ).document
    assert bytes(found["own"]) == bytes(found["messages"][0]["own"]) == text.encode()


def test_limits_name_the_field() -> None:
    stops = ",".join(['"a"'] * 50_000)
    assert fault(f'{{"stop":[{stops}]}}'.encode(), stop=16).message == (
        "`stop` must be a string of 1 to 1024 characters or a list of at most 16 of them; got more."
    )
    body = f'{{"messages":[{{"content":"x"}},{{"content":[{stops}]}}]}}'.encode()
    error = fault(body, **{"messages": 9, "messages[]": 9, "messages[].content": 4096})
    assert (error.param, error.status) == ("messages[1].content", 400)
    assert "1 to 4096 parts" in error.message
    bias = ",".join(f'"{number}":1' for number in range(50_000))
    assert (
        "an object of at most 1024 members" in fault(f'{{"logit_bias":{{{bias}}}}}'.encode(), logit_bias=1024).message
    )


@pytest.mark.parametrize("num", [MAX_VALUES - 10, MAX_VALUES + 10])
def test_keys_and_containers_are_counted(num: int) -> None:
    for rest in (",".join(f'"k{number}":1' for number in range(num)), '"own":[' + ",".join(["{}"] * num) + "]"):
        body = f"{{{rest}}}".encode()
        if num < MAX_VALUES:
            assert as_read(read(body).document) == json.loads(body)
        else:
            assert f"more than {MAX_VALUES}" in fault(body).message


def test_a_long_request_is_the_same_as_a_short_one() -> None:
    parse, filler = ChatRequestParser().parse, "x" * LONG_BYTES
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 100, "own": [1.5] * 10}] * 200
    short = parse(json.dumps({"model": "m", "messages": messages[:2], "user": "u", "stop": ["a"]}).encode())
    long = parse(json.dumps({"model": "m", "messages": messages, "own": filler, "user": "u", "stop": ["a"]}).encode())
    assert long.messages == short.messages * 100
    assert (long.fields.stop, long.fields.user, long.model) == (short.fields.stop, short.fields.user, "m")
    with pytest.raises(InvalidRequest) as caught:
        parse(json.dumps({"model": "m", "messages": [*messages, {"role": "user"}], "own": filler}).encode())
    assert caught.value.param == "messages[200].content"


def longest_hold_bytes(monkeypatch: pytest.MonkeyPatch, body: bytes) -> int:
    """Length of the longest text that one call of a decoder was given."""
    sizes = [0]

    def watched(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def call(text: bytes) -> Any:
            sizes.append(len(text))
            return decode(text)

        return call

    for name in ("_decode", "_decode_unread"):
        monkeypatch.setattr(sliced_json, name, watched(getattr(sliced_json, name)))
    LongObject(body, names=NAMES, limits={})
    return max(sizes)


@pytest.mark.parametrize("item", ["1", '"a"', '"\\""', "1.5", "[1,2]", '{"a":{"b":[]}}', "[[[[[[1]]]]]]"])
@pytest.mark.parametrize("text", ['{"own":[%s]}', '{"a":{"b":{"c":[%s]}}}', '{"messages":[{"content":[[%s]]}]}'])
def test_no_call_decodes_more_than_a_slice(item: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (text % ",".join([item] * (min(1 << 20, 20_000 * len(item)) // len(item)))).encode()
    assert longest_hold_bytes(monkeypatch, body) <= sliced_json.SLICE_BYTES + 2


def test_a_thread_that_reads_leaves_the_interpreter_to_others() -> None:
    """Held for the whole of this body, the lock would be free twice: before and after."""
    body = ('{"own":[' + ",".join(['"a"'] * (2 << 20)) + "]}").encode()
    reader, num_turns = threading.Thread(target=LongObject, args=(body,), kwargs={"names": NAMES, "limits": {}}), 0
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        reader.start()
        while reader.is_alive():
            reader.join(1e-4)
            num_turns += 1
    finally:
        sys.setswitchinterval(interval_s)
    assert num_turns > 20


def test_the_stored_items_of_unread_members_are_bounded() -> None:
    few = read(f'{{"own":[{",".join(["1"] * MAX_ITEMS)}],"pad":"{"x" * LONG_BYTES}"}}'.encode()).document
    assert few["own"] == [1] * MAX_ITEMS
