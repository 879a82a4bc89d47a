"""Faults of fields: the path from the decoder, the words from the table."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.chat.fields.faults import fault_of, only_with, too_many, wrong_value
from gateway.chat.schema import ChatFields

BASE: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"temperature": "hot"}, "temperature", '`temperature` must be a number between 0 and 2; got "hot".'),
        ({"n": True}, "n", "`n` must be an integer between 1 and 128; got true."),
        (
            {"repetition_penalty": 0},
            "repetition_penalty",
            "`repetition_penalty` must be above 0 and at most 10; got 0.",
        ),
        ({"user": "x" * 600}, "user", "`user` must be a string of at most 512 characters; got 600 characters."),
        (
            {"logit_bias": {"1": 5, "2": 500}},
            "logit_bias",
            "`logit_bias` must map token ids of 1 to 9 digits to numbers between -100 and 100; got 500.",
        ),
        (
            {"messages": [{"role": "x - at `$.model`", "content": "a"}]},
            "messages[0].role",
            '`messages[0].role` must be "system", "developer", "user", "assistant", "tool" or "function"; '
            'got "x - at `$.model`".',
        ),
        ({"top_k": 10**50}, "top_k", "`top_k` must be between -1 and 1000000; got a number of many digits."),
        ({"tools": {"a": 1}}, "tools", "`tools` must be a list of at most 4096 items; got an object of 1 members."),
    ],
)
def test_a_wrong_value_is_reported_in_the_clients_words(fields: dict[str, Any], param: str, message: str) -> None:
    document = BASE | fields
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(document, ChatFields)
    assert fault_of(str(caught.value), document) == (param, message)


def test_faults_that_no_decoder_reports() -> None:
    assert too_many("stop").message.endswith("at most 16 of them; got more.")
    assert only_with("top_logprobs", "logprobs").message == "`top_logprobs` must not be sent unless `logprobs` is true."
    assert wrong_value("elsewhere", 5).message == "`elsewhere` must be of another type; got 5."
