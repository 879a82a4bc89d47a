"""Variables that a request hands to the model's chat template."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from engine.frontend.fields.faults import FieldRefusal
from engine.frontend.request.errors import invalid_value, unsupported

MAX_OPTION_CHARS: Final = 256
"""Longest string that a request may hand to the chat template."""
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Values of `reasoning_effort` in ascending order."""
SYSTEM_SWITCHES: Final = {False: "/no_think", True: "/think"}
"""Texts in a system message that switch reasoning off and on."""
_HARMONY_EFFORTS: Final = frozenset({"low", "medium", "high"})
_SWITCHES: Final = ("enable_thinking", "thinking")
"""Boolean variables by which templates switch reasoning on and off."""

_KINDS: Final = {"enabled": True, "adaptive": True, "disabled": False}
"""Types of `thinking`, and whether each turns reasoning on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSwitches:
    """Ways in which one chat template lets a request choose how much the model reasons."""

    variables: Set[str]
    """Variables that the template reads."""
    efforts: Set[str] = frozenset()
    """Values of `reasoning_effort` that the template distinguishes; empty if it prints any."""
    is_harmony: bool = False
    """True for gpt-oss, which knows three efforts and whose template prints any."""
    has_system_switch: bool = False
    """True if the template looks for a switch in the system message."""

    def nearest_effort(self, effort: str) -> str:
        """Return the effort that the template knows nearest to this one, the smaller of two equally near."""
        known = self.efforts & set(EFFORTS) or (_HARMONY_EFFORTS if self.is_harmony else frozenset())
        if effort in known or effort not in EFFORTS or not known:
            return effort
        place = EFFORTS.index(effort)
        return min(known, key=lambda other: (abs(EFFORTS.index(other) - place), EFFORTS.index(other)))


def check_options(options: dict[str, Any]) -> None:
    """Raise ApiError (400) for a value that is no boolean, number or short string."""
    for name, value in options.items():
        if not (isinstance(value, int | float) or (isinstance(value, str) and len(value) <= MAX_OPTION_CHARS)):
            where = f"chat_template_kwargs.{name[:64]}"
            raise invalid_value(
                where, f"`{where}` must be true, false, a number or a string of at most {MAX_OPTION_CHARS} characters."
            )


def template_options(given: dict[str, Any] | None, effort: object, switches: TemplateSwitches) -> dict[str, Any]:
    """Return the variables that a request hands to the chat template.

    An effort becomes the nearest one that the template knows. For a template with a switch only, `none` and `minimal`
    turn reasoning off and the others turn it on. What `chat_template_kwargs` sets counts more.

    Args:
        given: Member `chat_template_kwargs`.
        effort: Member `reasoning_effort`.
        switches: What the template reads.

    Raises:
        ApiError: The template does not read one of `chat_template_kwargs` (400).
    """
    options = dict(given or {})
    known = switches.variables
    for name in sorted(options.keys() - known):
        where = f"chat_template_kwargs.{name[:64]}"
        read = ", ".join(sorted(known)) or "none"
        message = f"`{where}` is not a variable that the model's chat template reads; it reads {read}."
        raise unsupported(FieldRefusal(where, message))
    if not isinstance(effort, str) or len(effort) > MAX_OPTION_CHARS:
        return options
    if "reasoning_effort" in known:
        options.setdefault("reasoning_effort", switches.nearest_effort(effort))
    if (wants_reasoning := wanted_reasoning(effort)) is not None:
        for name in known & set(_SWITCHES):
            options.setdefault(name, wants_reasoning)
    return options


def requested_effort(effort: object, reasoning: object, switches: Sequence[object]) -> object:
    """Return the effort that a request asks for, in whichever member it does.

    Clients of several providers request it in their own ways. The first that states something counts; what is in no
    known form has no effect. A mere "on" is `medium`, a mere "off" is `none`.

    Args:
        effort: Member `reasoning_effort` (OpenAI).
        reasoning: Member `reasoning`, an object with `effort` or `enabled` (OpenRouter).
        switches: Members `thinking` and `enable_thinking`: a boolean or an object with `type` (Anthropic, GLM, Qwen).
    """
    if effort is not None:
        return effort
    members: list[object] = []
    if isinstance(reasoning, dict):
        if isinstance(reasoning.get("effort"), str):
            return reasoning["effort"]
        members.append(reasoning.get("enabled"))
    members += [_KINDS.get(str(switch.get("type"))) if isinstance(switch, dict) else switch for switch in switches]
    wanted = next((member for member in members if isinstance(member, bool)), None)
    return None if wanted is None else "medium" if wanted else "none"


def wanted_reasoning(effort: object) -> bool | None:
    """Return whether an effort turns reasoning on; None if it is no known effort."""
    return effort not in ("none", "minimal") if effort in EFFORTS else None


def system_switch(effort: object, switches: TemplateSwitches) -> str | None:
    """Return the text to add to the system message; None for templates that have a variable or no switch."""
    wants_reasoning = wanted_reasoning(effort)
    if wants_reasoning is None or not switches.has_system_switch or switches.variables & {*_SWITCHES}:
        return None
    return SYSTEM_SWITCHES[wants_reasoning]
