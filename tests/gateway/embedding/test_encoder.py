"""Encoder ids: which vectors may be compared."""

from __future__ import annotations

import pytest

from gateway.embedding.encoder import have_same_weights


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("all-minilm-l6-v2-0.1.0-int8-r1", "all-MiniLM-L6-v2-0.1.0-fp32", True),
        ("all-minilm-l6-v2-0.1.0-int8-r1", "all-minilm-l6-v2-0.2.0-int8-r1", False),
        ("words", "words", True),
    ],
)
def test_precision_and_revision_make_no_other_weights(first: str, second: str, same: bool) -> None:
    assert have_same_weights(first, second) is same
