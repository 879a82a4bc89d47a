"""Variables of the chat template that requests set."""

from __future__ import annotations

import pytest

from engine.frontend.request.errors import ApiError
from engine.frontend.request.template_options import TemplateSwitches, template_options


def test_a_template_gets_the_options_that_it_reads_and_no_others() -> None:
    given = {"enable_thinking": False}
    assert template_options(given, "low", TemplateSwitches(variables={"enable_thinking"})) == given
    both = TemplateSwitches(variables={"enable_thinking", "reasoning_effort"})
    assert template_options(given, "low", both) == {"enable_thinking": False, "reasoning_effort": "low"}
    with pytest.raises(ApiError) as caught:
        template_options(given, None, TemplateSwitches(variables={"tone"}))
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "chat_template_kwargs.enable_thinking")
    assert caught.value.message == (
        "`chat_template_kwargs.enable_thinking` is not a variable that the model's chat template reads; it reads tone."
    )
