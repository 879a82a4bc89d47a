"""A stream in whole events, wherever it was cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.forwarding.stream_head import MAX_HELD_BYTES, WholeEvents

EVENTS = st.lists(
    st.sampled_from([b'data: {"a":1}', b"data: [DONE]", b": hb", b"event: x\ndata: 1", b"data: \xf0\x9f"])
)


def test_a_piece_that_ends_with_an_event_is_passed_on_as_it_is() -> None:
    piece = b"data: 1\n\n"

    assert WholeEvents().feed(piece) is piece


def test_half_an_event_waits_for_its_end() -> None:
    events = WholeEvents()

    assert events.feed(b"data: 1\n\ndata: {") == b"data: 1\n\n"
    assert events.feed(b"}\n") == b""
    assert events.feed(b"\n") == b"data: {}\n\n"
    assert events.rest == b""


@given(events=EVENTS, end=st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]), data=st.data())
def test_no_byte_is_lost_and_only_whole_events_come_out(events: list[bytes], end: bytes, data: st.DataObject) -> None:
    stream = b"".join(event + end for event in events)
    whole, out = WholeEvents(), b""
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        out += whole.feed(stream[:size])
        stream = stream[size:]
        assert not out or out.endswith(end)

    assert out == b"".join(event + end for event in events)
    assert whole.rest == b""


def test_an_event_beyond_all_bounds_is_passed_on_in_parts() -> None:
    events = WholeEvents()
    piece = b"x" * (MAX_HELD_BYTES + 1)

    assert events.feed(piece) == piece
