"""Frames between the front and the core: any chunking gives the same messages, and strange bytes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import (
    MAX_FRAME_BYTES,
    Abort,
    Add,
    Fatal,
    FrameError,
    FrameSplitter,
    SamplingParams,
    SeqOutput,
    Shutdown,
    TakeOver,
    ToCore,
    TokenLogprobs,
    decode_to_core,
    decode_to_front,
    encode_frame,
)

ADD = Add(
    seq_id=3,
    prompt_token_ids=[1, 2**31],
    params=SamplingParams(max_tokens=5, logit_bias={7: -1.5}, stop_token_ids=(2,), num_top_logprobs=0),
    cache_salt=b"\x00salt",
    deadline_s=0.25,
    grammar="ä",
)
MESSAGES: list[ToCore] = [ADD, Abort(seq_ids=[3, 4]), TakeOver(num_blocks=9), Shutdown()]


@given(st.lists(st.integers(1, 40), max_size=30))
def test_any_chunking_of_the_stream_gives_the_same_messages(sizes: list[int]) -> None:
    stream, splitter = b"".join([encode_frame(message) for message in MESSAGES]), FrameSplitter()
    found, at = [], 0
    for size in [*sizes, len(stream)]:
        found += [decode_to_core(body) for body in splitter.feed(stream[at : at + size])]
        at += size
    assert found == MESSAGES


def test_an_answer_without_log_probabilities_is_distinguished_from_one_with_the_chosen_tokens_only() -> None:
    for num_top in (None, 0):
        params = SamplingParams(max_tokens=1, num_top_logprobs=num_top)
        (body,) = FrameSplitter().feed(encode_frame(Add(seq_id=1, prompt_token_ids=[1], params=params)))
        found = decode_to_core(body)
        assert isinstance(found, Add)
        assert found.params.num_top_logprobs == num_top


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81\xa4type\xa5other", b"\x80", b"\x81\xa4type\xa3add"])
def test_bytes_that_are_no_message_are_refused_with_their_sender(body: bytes) -> None:
    with pytest.raises(FrameError, match="bad frame from the front"):
        decode_to_core(body)
    with pytest.raises(FrameError, match="bad frame from the core"):
        decode_to_front(body)


def test_a_message_for_the_other_side_is_refused() -> None:
    (body,) = FrameSplitter().feed(encode_frame(Fatal(message="x")))
    with pytest.raises(FrameError):
        decode_to_core(body)
    assert decode_to_front(body) == Fatal(message="x")


def test_a_frame_that_is_too_long_is_refused_by_its_head_alone() -> None:
    with pytest.raises(FrameError, match="exceeds the limit"):
        list(FrameSplitter().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big")))


def test_what_a_field_leaves_out_is_its_default() -> None:
    output = SeqOutput(seq_id=1, token_ids=[5], logprobs=[TokenLogprobs(-0.5)])
    assert (output.finish_reason, output.fault, output.stages) == (None, None, None)
    assert output.logprobs is not None
    assert output.logprobs[0].top == []
