"""Grammar rules of reasoning before a constrained answer: it stays free, and the answer's grammar starts behind it."""

from __future__ import annotations

from engine.frontend.tools.lark_rules import ANY_TEXT, ids_rule, marker_rule
from engine.frontend.tools.reasoning_format import ReasoningFormat, ReasoningStart
from engine.frontend.tools.tool_format import HARMONY_MARKERS

_SPACES = r"/[ \t\r\n]{1,8}/"


def reasoning_rules(form: ReasoningFormat, start: ReasoningStart) -> str:
    """Return the rules of `start`: reasoning, where the answer to this prompt may have some, then `body`.

    1. The prompt opens the reasoning: it must end before the body.
    2. The model decides: the answer begins with the opening mark or with the body.
    """
    others = ids_rule(form.other_ids)
    closing = " | ".join(marker_rule(mark, form.marker_ids) for mark in form.closings)
    text = f"REASONING: /{ANY_TEXT}+/\nSPACES: {_SPACES}\n"
    if form.markers:
        free = " | ".join(filter(None, ("REASONING", others)))
        rules = f"reasoning: ({free})* ({closing}) SPACES?\n{text}"
    else:
        free = f"(REASONING? {others})* " if others else ""
        rules = f"reasoning: {free}reasoning_end SPACES?\nreasoning_end[lazy]: /{ANY_TEXT}*/ ({closing})\n{text}"
    tail = "body"
    if form.answer_tags is not None:
        opening_tag, closing_tag = form.answer_tags
        rules += f'tagged: "{opening_tag}" body "{closing_tag}" | body\n'
        tail = "tagged"
    if start == "inside":
        return f"start: reasoning {tail}\n{rules}"
    opening = " | ".join(marker_rule(mark, form.marker_ids) for mark in form.openings)
    return f"start: SPACES? ({opening}) reasoning {tail} | {tail}\n{rules}"


def harmony_rules(form: ReasoningFormat, *, has_commentary: bool) -> str:
    """Return the rules of `start`: any messages of reasoning, then `body`, the last message.

    With `has_commentary`, messages for the user may stand among them; clients get these as part of the answer.
    """
    start, channel, message, _ = (marker_rule(mark, form.marker_ids) for mark in HARMONY_MARKERS[:4])
    end = marker_rule(HARMONY_MARKERS[4], form.marker_ids)
    channels = '("analysis" | "commentary")' if has_commentary else '"analysis"'
    free = " | ".join(filter(None, ("NOTE", ids_rule(form.other_ids))))
    return (
        f'start: (note {start} "assistant")* body\n'
        f"note: {channel} {channels} {message} ({free})* {end}\n"
        f"NOTE: /{ANY_TEXT}+/\n"
    )


def harmony_final(form: ReasoningFormat, content: str) -> str:
    """Return the right-hand side of a message in the channel `final` with this content."""
    _, channel, message, _ = (marker_rule(mark, form.marker_ids) for mark in HARMONY_MARKERS[:4])
    return f'{channel} "final" {message} {content}'
