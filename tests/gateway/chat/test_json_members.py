"""Members of a JSON object: changed or left out while the others stay as written."""

from __future__ import annotations

import gc
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.json_members import with_members, without_members
from tests.gateway.test_derived_requests import AS_WRITTEN, documents, names, values, written


@given(st.data(), documents, st.dictionaries(names, values, max_size=3))
def test_any_object_changes_in_exactly_the_meant_members(
    data: st.DataObject, document: dict[str, Any], changes: dict[str, Any]
) -> None:
    text = data.draw(written(document))

    assert json.loads(with_members(text.encode(), changes)) == {**document, **changes}


@pytest.mark.parametrize("filler", ['"a"', "[]", "{}", '"\\\\\\""', "-1.5e3"])
def test_the_work_grows_no_faster_than_the_object(filler: str) -> None:
    def seconds(num: int) -> float:
        body = ('{"own":[' + ",".join([filler] * num) + '],"\\u006dodel":"auto"}').encode()
        begun = time.process_time()
        assert json.loads(with_members(body, {"model": "b"}))["model"] == "b"
        return time.process_time() - begun

    gc.disable()  # looking through what other tests left takes longer than the work
    try:
        few, many = (min(seconds(num) for _ in range(3)) for num in (10_000, 100_000))
    finally:
        gc.enable()
    assert many < 40 * few + 0.05


@pytest.mark.parametrize(
    "text", ['{ "stream" : true , %s}', '{%s, "stream":false}', '{%s,"str\\u0065am_options":{"a":[]} }', "{%s}"]
)
def test_members_are_left_out_and_the_others_stay_as_written(text: str) -> None:
    left = without_members((text % AS_WRITTEN).encode(), {"stream", "stream_options"}).decode()

    assert json.loads(left).keys() == {"y", "z", "e", "t", "u", "big", "own"}
    for member in AS_WRITTEN.split(",")[:6]:
        assert member in left
    assert AS_WRITTEN[AS_WRITTEN.index('"own"') :] in left


def test_of_an_object_all_members_may_be_left_out() -> None:
    assert without_members(b' {"a": 1} ', {"a"}) == b"{}"
    assert without_members(b" { } ", {"a"}) == b" { } "


def test_a_body_for_a_background_call_may_hold_integers_beyond_64_bits() -> None:
    assert json.loads(with_members(b'{"a":1}', {"b": 2**80})) == {"a": 1, "b": 2**80}
    assert msgspec.json.decode(with_members(b"{}", {"b": "\u00e9"})) == {"b": "\u00e9"}
    assert with_members(b" { } ", {}) == b" { } "
