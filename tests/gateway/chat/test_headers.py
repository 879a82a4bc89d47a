"""ChatHead: what clients state in headers, and what of it is believed."""

from __future__ import annotations

import pytest

from gateway.chat.headers import ChatHead


@pytest.mark.parametrize(("value", "seconds"), [(b"600", 600.0), (b"0.5", 0.5), (b"86400", 86_400.0)])
def test_a_client_timeout_is_in_seconds(value: bytes, seconds: float) -> None:
    assert ChatHead([(b"x-stainless-timeout", value)]).client_timeout_s == seconds
    assert ChatHead([(b"x-stainless-read-timeout", value)]).client_timeout_s == seconds


def test_the_read_timeout_states_more_than_the_whole_one() -> None:
    both = [(b"x-stainless-timeout", b"60"), (b"x-stainless-read-timeout", b"5")]
    assert ChatHead(both).client_timeout_s == 5.0


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"",
            b"0",
            b"0.0",
            b"-1",
            b"+1",
            b" 5",
            b"5s",
            b"soon",
            b"nan",
            b"inf",
            b"-inf",
            b"1e3",
            b"1_0",
            b"0x10",
            b".",
        ),
        *(b"5.", b".5", b"86401", b"9" * 9, b"9" * 400, b"1." + b"0" * 400, b"5\n", "٣".encode(), b"\xff"),
    ],
)
def test_a_timeout_that_makes_no_sense_is_none(value: bytes) -> None:
    assert ChatHead([(b"x-stainless-timeout", value)]).client_timeout_s is None


def test_a_read_timeout_that_makes_no_sense_leaves_the_other() -> None:
    both = [(b"x-stainless-timeout", b"60"), (b"x-stainless-read-timeout", b"soon")]
    assert ChatHead(both).client_timeout_s == 60.0
