"""Usage of both APIs, each as the other; what no request can use is no usage."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.messages.usage import NO_USAGE, chat_usage, message_usage
from gateway.dialects.responses.response_frame import responses_usage

HUGE = 10**20


def test_cached_tokens_are_inside_of_the_prompt_in_one_api_and_beside_it_in_the_other() -> None:
    message = {
        "input_tokens": 4,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 3,
        "output_tokens": 5,
    }
    chat = chat_usage(message)
    assert chat is not None
    assert (chat["prompt_tokens"], chat["completion_tokens"], chat["total_tokens"]) == (9, 5, 14)
    assert message_usage(chat) == message


@pytest.mark.parametrize("name", NO_USAGE)
@pytest.mark.parametrize("figure", [HUGE, -1])
def test_a_message_with_an_impossible_figure_has_no_usage(name: str, figure: int) -> None:
    assert chat_usage({"input_tokens": 1, "output_tokens": 1, name: figure}) is None


@pytest.mark.parametrize("usage", [{"prompt_tokens": HUGE}, {"prompt_tokens": 1, "completion_tokens": HUGE}])
def test_no_client_gets_an_impossible_figure(usage: dict[str, Any]) -> None:
    assert max(message_usage(usage).values()) <= 1
    assert responses_usage(usage) is None


def test_a_total_that_is_impossible_is_added_up() -> None:
    found = responses_usage({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": HUGE})
    assert found is not None
    assert found["total_tokens"] == 5
