"""AnswerComparer: a model that compares two answers, once in each order, so that its preference for a place cancels."""

from __future__ import annotations

import re
from typing import Final

from gateway.cli.outcomes.model_server import ModelServer
from gateway.cli.outcomes.prompt_file import ComparedPrompt, PromptError, text_of_message

VERDICT_TOKENS: Final = 512
"""Maximum number of tokens of a verdict: a word, after a reasoning model's thoughts."""
MAX_TEXT_CHARS: Final = 12_000
_VERDICT: Final = re.compile(r"\b(A|B|[Tt][Ii][Ee])\b")
_VERDICT_LINE: Final = re.compile(r"\W*(?:(?:final )?(?:verdict|answer|winner|choice)\W+)?(a|b|tie)\W*", re.IGNORECASE)
_INSTRUCTIONS: Final = """\
Compare two answers to the same request. Judge only whether they are right, complete and do what was requested; ignore \
length, style and order. Reply with one word: A if answer A is clearly better, B if answer B is clearly better, TIE if \
both are equally good or equally bad."""


class AnswerComparer:
    """Comparer of pairs of answers, by a third model."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.num_compared = 0
        self.num_contradicted = 0
        """Number of pairs of answers of which the model preferred another one in the other order."""

    async def scores(self, one: ComparedPrompt, small: str, large: str) -> tuple[float, float]:
        """Return the scores of two answers: 1 for one that is as good as the other, 0 for the worse, 1/2 in doubt.

        Raises:
            OutcomesError: The model does not answer.
            PromptError: The model states no verdict.
        """
        if small.split() == large.split():
            return (1.0, 1.0) if small.strip() else (0.0, 0.0)
        if not (small.strip() and large.strip()):
            return float(bool(small.strip())), float(bool(large.strip()))
        first = await self._verdict(one, small, large)
        second = await self._verdict(one, large, small)
        wins = [(first == "A") + (second == "B"), (first == "B") + (second == "A")]
        self.num_compared += 1
        self.num_contradicted += wins == [1, 1]
        return 1.0 - wins[1] / 2, 1.0 - wins[0] / 2

    async def _verdict(self, one: ComparedPrompt, first: str, second: str) -> str:
        request = "\n\n".join(
            f"[{message.get('role', 'user')}] {text_of_message(message)}" for message in one.conversation
        )
        right = f"\n\n<reference>\n{' / '.join(one.answers)}\n</reference>" if one.answers else ""
        shown = [_shortened(text) for text in (request, first, second)]
        content = (
            f"<request>\n{shown[0]}\n</request>{right}\n\n<answer A>\n{shown[1]}\n</answer A>\n\n"
            f"<answer B>\n{shown[2]}\n</answer B>\n\nOne word: A, B or TIE."
        )
        messages = [{"role": "system", "content": _INSTRUCTIONS}, {"role": "user", "content": content}]
        answer = await self.server.answer(messages, max_tokens=VERDICT_TOKENS)
        found = _verdict_of(answer.text)
        if found is None:
            raise PromptError(f"the judge {self.server.name} gave no verdict: {answer.text[:80]!r}")
        return found


def _verdict_of(text: str) -> str | None:
    """Return A, B or TIE: the only one in the text, or the last line's; None where it is not plain."""
    lines = text.strip().splitlines()
    last = _VERDICT_LINE.fullmatch(lines[-1]) if lines else None
    if last is not None:
        return last[1].upper()
    found = {word.upper() for word in _VERDICT.findall(text)}
    return found.pop() if len(found) == 1 else None


def _shortened(text: str) -> str:
    """Return the text, or its beginning and its end, where a question often stands."""
    half = MAX_TEXT_CHARS // 2
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:half]}\n[…]\n{text[-half:]}"
