"""Variables of the chat template that requests set."""

from __future__ import annotations

import pytest

from engine.frontend.request.errors import ApiError
from engine.frontend.request.template_options import TemplateSwitches, requested_effort, system_switch, template_options


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


@pytest.mark.parametrize(
    ("effort", "is_on"),
    [("none", False), ("minimal", False), ("low", True), ("max", True), ("much", None), (3, None), (None, None)],
)
def test_an_effort_turns_a_switch(effort: object, is_on: bool | None) -> None:
    for name in ("enable_thinking", "thinking"):
        found = template_options(None, effort, TemplateSwitches(variables={name, "tone"}))
        assert found == ({} if is_on is None else {name: is_on})
    bare = TemplateSwitches(variables={"tone"}, has_system_switch=True)
    assert system_switch(effort, bare) == {True: "/think", False: "/no_think", None: None}[is_on]
    assert system_switch(effort, TemplateSwitches(variables={"thinking"}, has_system_switch=True)) is None
    assert system_switch(effort, TemplateSwitches(variables=set())) is None


@pytest.mark.parametrize(
    ("efforts", "is_harmony", "effort", "given"),
    [
        ({"none", "high"}, False, "low", "none"),
        ({"none", "high"}, False, "xhigh", "high"),
        ({"none", "high"}, False, "medium", "high"),
        ({"low", "odd"}, False, "odd", "odd"),
        (set(), False, "minimal", "minimal"),
        (set(), True, "minimal", "low"),
        (set(), True, "max", "high"),
        (set(), True, "unheard-of", "unheard-of"),
    ],
)
def test_an_effort_becomes_the_nearest_that_the_template_knows(
    efforts: set[str], is_harmony: bool, effort: str, given: str
) -> None:
    switches = TemplateSwitches(variables={"reasoning_effort"}, efforts=efforts, is_harmony=is_harmony)
    assert template_options(None, effort, switches) == {"reasoning_effort": given}


@pytest.mark.parametrize(
    ("effort", "reasoning", "switches", "wanted"),
    [
        ("low", {"effort": "high"}, (False,), "low"),
        (None, {"effort": "high", "enabled": False}, (), "high"),
        (None, {"enabled": False}, ({"type": "enabled"},), "none"),
        (None, {"max_tokens": 100}, ({"type": "enabled", "budget_tokens": 2048}, None), "medium"),
        (None, None, ({"type": "adaptive"}, None), "medium"),
        (None, None, ({"type": "disabled"}, True), "none"),
        (None, None, (None, False), "none"),
        (None, None, (True, None), "medium"),
        (None, "on", ({"type": ["enabled"]}, 1), None),
        (None, None, ("yes", {}), None),
        (None, None, (None, None), None),
    ],
)
def test_the_first_member_that_states_something_counts(
    effort: object, reasoning: object, switches: tuple[object, ...], wanted: str | None
) -> None:
    assert requested_effort(effort, reasoning, switches) == wanted
