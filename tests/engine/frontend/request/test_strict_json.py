"""JSON that other parsers would read differently is refused."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.frontend.request.errors import ApiError
from engine.frontend.request.strict_json import MAX_DEPTH, MAX_ELEMENTS, MAX_MEMBERS, parse_object

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='ab:"{}[]\\', max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(alphabet='ab:"{}[]\\', max_size=4), VALUES, max_size=4))
def test_any_object_is_read_as_it_was_written(value: dict[str, object]) -> None:
    assert parse_object(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a":1} x',
        b"[]",
        b'"text"',
        b"null",
        b"NaN",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 1_000_000 + b"}",
        b'{"a":"\\ud800"}',
        b'{"a":"\\udc00x"}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        b'{"a":01}',
        b'{"a":1,}',
        b"{'a':1}",
        b'{"a":1,"a":2}',
        b'{"a":1,"\\u0061":2}',
        b'{"x":[{"b":{"c":1,"c":2}}]}',
        b'{"a":"\n"}',
    ],
)
def test_refuses(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_object(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


@pytest.fixture
def no_collection() -> Iterator[None]:
    """The heap of a whole test run takes most of a second to walk, which would count as the parser's time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("unit", [b"[", b'{"a":', b'[{"a":'])
def test_a_depth_bomb_is_answered_in_ten_milliseconds(unit: bytes) -> None:
    body = b'{"a":' + unit * 10_000
    started_at = time.thread_time()
    with pytest.raises(ApiError):
        parse_object(body)
    assert time.thread_time() - started_at < 0.01


def test_nesting_ends_at_the_limit() -> None:
    deepest = b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    assert parse_object(deepest)
    with pytest.raises(ApiError, match="nested too deeply"):
        parse_object(b'{"a":[' + deepest + b"]}")


@pytest.mark.parametrize("member", [b'"k":0', b'"k" :0', b'"k\\\\":0'])
def test_too_many_members_are_refused(member: bytes) -> None:
    body = b'{"x":[' + b",".join([b"{" + member + b"}"] * (MAX_MEMBERS + 1)) + b"]}"
    with pytest.raises(ApiError, match="too many values"):
        parse_object(body)


@pytest.mark.parametrize("element", [b'"a"', b'"\\""', b"1", b"[]", b"null"])
def test_too_many_elements_are_refused(element: bytes) -> None:
    body = b'{"x":[' + b",".join([element] * (MAX_ELEMENTS + 2)) + b"]}"
    with pytest.raises(ApiError, match="too many values"):
        parse_object(body)


def test_a_body_full_of_short_texts_is_answered_in_a_fraction_of_a_second() -> None:
    body = b'{"stop":[' + b",".join([b'"a"'] * 3_000_000) + b"]}"
    started_at = time.thread_time()
    with pytest.raises(ApiError, match="too many values"):
        parse_object(body)
    assert time.thread_time() - started_at < 0.2


def test_a_prompt_of_very_many_token_ids_is_read() -> None:
    token_ids = list(range(300_000))
    assert parse_object(json.dumps({"prompt": token_ids}).encode()) == {"prompt": token_ids}
