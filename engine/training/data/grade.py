"""Grading of answers: normalized exact match; JSON is compared as JSON."""

import json
import re


def is_right(answer: str, expected: str) -> bool:
    """Return whether the answer is right, apart from case, white space and final punctuation."""
    if expected[:1] in "{[":
        return bool(_parsed(answer) == json.loads(expected))
    return normalised(answer) == normalised(expected)


def normalised(text: str) -> str:
    """Fold case, collapse white space and drop the punctuation at the end."""
    return re.sub(r"\s+", " ", text).strip().rstrip(".!?,;: ").casefold()


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
