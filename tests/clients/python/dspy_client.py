"""dspy: a language model and a predictor."""

from __future__ import annotations

import dspy
from cells import AGENT, KEY, MODEL, PROMPT, V1, cell, run


@cell("chat")
def plain() -> None:
    """A plain call."""
    assert dspy.LM(f"openai/{MODEL}", api_base=V1, api_key=KEY, cache=False, max_tokens=16)(PROMPT)


@cell("chat")
def predict() -> None:
    """A predictor whose answer has fields."""
    model = dspy.LM(f"openai/{AGENT}", api_base=V1, api_key=KEY, cache=False)
    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        assert dspy.Predict("question -> answer")(question=PROMPT).answer


@cell("responses")
def responses() -> None:
    """A call over responses."""
    model = dspy.LM(f"openai/{MODEL}", model_type="responses", api_base=V1, api_key=KEY, cache=False, max_tokens=16)
    assert model(PROMPT)


run()
