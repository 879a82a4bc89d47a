"""Whether an answer is right: normalised exact match; JSON is compared as JSON."""

import json
import re


def is_right(answer: str, expected: str) -> bool:
    """Whether the answer says what is expected, apart from case, white space and final punctuation."""
    if expected[:1] in "{[":
        return bool(_parsed(answer) == json.loads(expected))
    return normalised(answer) == normalised(expected)


def normalised(text: str) -> str:
    """Case folded, white space collapsed, no punctuation at the end."""
    return re.sub(r"\s+", " ", text).strip().rstrip(".!?,;: ").casefold()


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
