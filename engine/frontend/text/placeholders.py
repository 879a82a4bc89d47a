"""Placeholders for the clients' texts in a rendered template, at which the prompt is cut into segments."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.frontend.text.sandbox import TemplateError


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a prompt; special tokens are recognized in `trusted` segments only."""

    text: str
    trusted: bool


class TextPlaceholders:
    """Placeholders of the texts of one conversation."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._texts: list[str] = []

    def hide(self, turn: dict[str, str]) -> dict[str, str]:
        """Return the turn with each text replaced, except for the white space around it."""
        return {key: value if key == "role" else self._replace(value) for key, value in turn.items()}

    def _replace(self, text: str) -> str:
        core = text.strip()
        if not core:
            return text
        start = text.index(core)
        self._texts.append(core)
        return f"{text[:start]}{self._nonce}x{len(self._texts) - 1}x{text[start + len(core) :]}"

    def cut(self, rendered: str) -> list[Segment]:
        """Cut the rendered prompt into segments.

        Raises:
            TemplateError: The template changed a placeholder.
        """
        pieces = re.split(f"{self._nonce}x([0-9]+)x", rendered)
        segments = []
        for i, piece in enumerate(pieces):
            if i % 2:
                segments.append(Segment(self._texts[int(piece)], trusted=False))
            elif self._nonce.lower() in piece.lower():
                raise TemplateError("the model's chat template changes message text that has special tokens in it")
            elif piece:
                segments.append(Segment(piece, trusted=True))
        return segments
