"""AnswerComparer: a model that compares two answers, once in each order, so that its preference for a place cancels."""

from __future__ import annotations

import re
from typing import Final

from gateway.cli.outcomes.model_server import ModelServer
from gateway.cli.outcomes.prompt_file import ComparedPrompt, OutcomesError

VERDICT_TOKENS: Final = 512
"""Most tokens of a verdict: a word, after a reasoning model's thoughts."""
MAX_TEXT_CHARS: Final = 12_000
_VERDICT: Final = re.compile(r"\b(A|B|TIE)\b")
_INSTRUCTIONS: Final = """\
Compare two answers to the same request. Judge only whether they are right, complete and do what was requested; ignore \
length, style and order. Reply with one word: A if answer A is clearly better, B if answer B is clearly better, TIE if \
both are equally good or equally bad."""


class AnswerComparer:
    """Comparer of pairs of answers, by a third model."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server

    async def scores(self, one: ComparedPrompt, small: str, large: str) -> tuple[float, float]:
        """Return the scores of two answers: 1 for one that is as good as the other, 0 for the worse, 1/2 in doubt.

        Raises:
            OutcomesError: The model does not answer, or states no verdict.
        """
        if small.split() == large.split():
            return 1.0, 1.0
        first = await self._verdict(one, small, large)
        second = await self._verdict(one, large, small)
        wins = [(first == "A") + (second == "B"), (first == "B") + (second == "A")]
        return 1.0 - wins[1] / 2, 1.0 - wins[0] / 2

    async def _verdict(self, one: ComparedPrompt, first: str, second: str) -> str:
        request = "\n\n".join(
            f"[{message.get('role', 'user')}] {message.get('content', '')}" for message in one.conversation
        )
        right = f"\n\n<reference>\n{' / '.join(one.answers)}\n</reference>" if one.answers else ""
        shown = [text[:MAX_TEXT_CHARS] for text in (request, first, second)]
        content = (
            f"<request>\n{shown[0]}\n</request>{right}\n\n<answer A>\n{shown[1]}\n</answer A>\n\n"
            f"<answer B>\n{shown[2]}\n</answer B>\n\nOne word: A, B or TIE."
        )
        messages = [{"role": "system", "content": _INSTRUCTIONS}, {"role": "user", "content": content}]
        answer = await self.server.answer(messages, max_tokens=VERDICT_TOKENS)
        found = _VERDICT.findall(answer.text.upper() if len(answer.text) < 8 else answer.text)
        if not found:
            raise OutcomesError(f"the judge {self.server.name} gave no verdict: {answer.text[:80]!r}")
        return str(found[-1])
