"""Types of command-line arguments that argparse lacks; errors are explained in words."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError


def duration_s(text: str) -> float:
    """Parse a duration in seconds, zero or more. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0.0):
        raise ArgumentTypeError(f"expected a number of seconds, got {text!r}")
    return value


def count(text: str) -> int:
    """Parse a whole number, 1 or more. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and int(text[:10]) > 0 and len(text) <= 9):
        raise ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")
    return int(text)


def ratio(text: str) -> float:
    """Parse a share from 0 to 1. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise ArgumentTypeError(f"expected a share from 0 to 1, got {text!r}")
    return value
