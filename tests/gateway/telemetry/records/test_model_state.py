"""Statements of models: read from headers of strangers, and never believed when malformed."""

from __future__ import annotations

import pytest

from gateway.telemetry.records.model_state import NOTHING_STATED, ModelState, stated_in, with_fingerprint

VALUE = b"0123456789abcdef;int8/float32/float32;fedcba9876543210;00112233445566778899aabbccddeeff"


def test_an_engines_statement_has_four_parts() -> None:
    found = stated_in([(b"content-type", b"text/plain"), (b"x-penstock-model-state", VALUE)])
    assert found == ModelState(
        model="0123456789abcdef",
        quantization="int8/float32/float32",
        template="fedcba9876543210",
        engine="00112233445566778899aabbccddeeff",
    )
    assert found.is_stated


@pytest.mark.parametrize("value", [b"", b"a;b;c;d", VALUE + b"\n", VALUE + b";x", VALUE.replace(b"int8", b"<b>" * 99)])
def test_anything_else_states_nothing(value: bytes) -> None:
    assert stated_in([(b"x-penstock-model-state", value)]) == NOTHING_STATED


def test_servers_of_others_have_a_fingerprint_of_bounded_length() -> None:
    found = with_fingerprint(NOTHING_STATED, b'{"system_fingerprint": "%b"}' % (b"f" * 500))
    assert found.fingerprint == "f" * 128
    for answer in (b"{}", b'{"system_fingerprint": null}', b'{"system_fingerprint": 1}', b"[", b"\xff"):
        assert with_fingerprint(NOTHING_STATED, answer) == NOTHING_STATED
