"""Chat requests of every kind, and predictions of their answers from right to useless."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

_TEXTS: Final = (
    "How do I cancel my order 48213?",
    "My name is Anna, I am 31 and I live in Leeds. Extract name and city.",
    "Write a story about a ship and its crew.",
    "Count from 1 to 40.",
    "Repeat: the parcel arrives on 3 May at the door of the house in the town.",
    "Which payment methods do you take? Answer in a list.",
    "Explain what a refund is, then explain it again in other words.",
    "What is the weather in Oslo for 3 days?",
)
_SYSTEM: Final = "You are the support assistant of an online shop. Answer in a few complete sentences."
_PERSON: Final = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_SCHEMA: Final = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": _PERSON}}
_WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "greedy": {"temperature": 0},
    "seeded": {"temperature": 0.7},
    "hot": {"temperature": 1.2, "ignore_eos": True},
    "truncated": {"temperature": 1.0, "top_p": 0.8, "top_k": 20},
    "greedy penalties": {"temperature": 0, "frequency_penalty": 0.6, "presence_penalty": 0.3, "ignore_eos": True},
    "seeded penalties": {"temperature": 0.9, "frequency_penalty": 0.4, "repetition_penalty": 1.2},
    "bias": {"temperature": 0, "logit_bias": {"17": 3.0, "40": -50.0}},
    "stop strings": {"temperature": 0.8, "stop": ["e th", "zzq", "order"], "ignore_eos": True},
    "least tokens": {"temperature": 0, "min_tokens": 12, "max_tokens": 24},
    "logprobs": {"temperature": 0, "logprobs": True, "top_logprobs": 3},
    "seeded logprobs": {"temperature": 1.0, "logprobs": True, "top_logprobs": 2, "stop": ["e th"]},
    "schema": {"temperature": 1.0, "response_format": _SCHEMA},
    "greedy schema": {"temperature": 0, "response_format": _SCHEMA, "logprobs": True},
    "object": {"temperature": 0.6, "response_format": {"type": "json_object"}},
    "tools": {"temperature": 1.0, "tools": [_WEATHER], "tool_choice": "required"},
    "free tools": {"temperature": 0, "tools": [_WEATHER]},
    "choices": {"temperature": 0.9, "n": 3},
    "greedy choices": {"temperature": 0, "n": 2},
}
"""Fields of the requests of each kind."""
_MAX_TOKENS: Final = (1, 2, 7, 24, 48, 64)
PREDICTIONS: Final = ("equal", "changed", "beginning", "end", "longer", "twice", "unrelated", "nothing")
"""Predictions by how they differ from the answer."""


def varied_request(kind: str, rng: Random) -> dict[str, Any]:
    """Return a body of a kind of `KINDS`, with a question and a seed at random."""
    messages = [{"role": "user", "content": rng.choice(_TEXTS)}]
    if rng.random() < 0.5:
        messages.insert(0, {"role": "system", "content": _SYSTEM})
    return {
        "model": "bench",
        "messages": messages,
        "max_tokens": rng.choice(_MAX_TOKENS),
        "seed": rng.randrange(1 << 31),
        **KINDS[kind],
    }


def predicted_text(kind: str, answer: str, rng: Random) -> str:
    """Return a prediction of a kind of `PREDICTIONS` for this answer."""
    if kind == "changed":
        return changed_text(answer, rng)
    texts = {
        "equal": answer,
        "beginning": answer[: len(answer) // 2],
        "end": answer[len(answer) // 2 :],
        "longer": f"{answer} And another sentence.",
        "twice": answer + answer,
        "unrelated": "The bridge over the river was built in nine years.",
        "nothing": "",
    }
    return texts[kind]


def changed_text(text: str, rng: Random) -> str:
    """Return the text with about a word in six replaced, left out or preceded by another."""
    words: list[str] = []
    for word in text.split(" "):
        drawn = rng.random()
        if drawn < 0.06:
            words.append("lamp")
        elif drawn < 0.12:
            words += ["lamp", word]
        elif drawn > 0.06 * 3:
            words.append(word)
    return " ".join(words)
