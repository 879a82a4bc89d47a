"""Records of draft tokens that Python and compiled code share."""

from __future__ import annotations

import numpy as np

DRAFT_ROW = np.dtype(
    [
        ("text", np.int64),
        ("length", np.int64),
        ("salt", np.int64),
        ("num_prompt", np.int64),
        ("prediction", np.int64),
        ("num_predicted", np.int64),
        ("first_agreement", np.int64),
        ("num_drafts", np.int64),
        ("num_stops", np.int64),
        ("max_drafts", np.int64),
        ("accepted_probability", np.float64),
        ("least_probability", np.float64),
        ("least_next_probability", np.float64),
    ],
    align=True,
)
"""Record of a text to continue: its address (int64 tokens), its length in tokens, and its salt in the n-gram memory.

`num_drafts` draft tokens follow the text already, accepted with the probability `accepted_probability`. `num_stops`
tokens would end the text. At most `max_drafts` are added. Each has a probability of at least `least_next_probability`,
and all of them together one of at least `least_probability`. The text begins with `num_prompt` tokens of the prompt.
`prediction` is the address of `num_predicted` int64 tokens that the answer behind them may have, and `first_agreement`
the index of their first kind in the table of kinds.
"""
DRAFT_END = np.dtype([("num_drafts", np.int64), ("is_over", np.int64)], align=True)
"""Record of the draft tokens found for a text: their number, and 1 if a token that ends the text follows them."""
TRIALS = np.dtype([("accepted", np.float64), ("tried", np.float64)], align=True)
"""Record of one kind of draft token: decayed numbers of accepted and of all of its tokens."""
