"""instructor: structured answers by tools and by JSON schema."""

from __future__ import annotations

import instructor
import openai
from cells import AGENT, KEY, MODEL, PROMPT, V1, cell, run
from pydantic import BaseModel

CLIENT = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0)


class Sum(BaseModel):
    """A sum."""

    value: int


def _parsed(mode: instructor.Mode, model: str) -> object:
    client = instructor.from_openai(CLIENT, mode=mode)
    return client.chat.completions.create(
        model=model, response_model=Sum, messages=[{"role": "user", "content": PROMPT}], max_tokens=64, max_retries=0
    )


@cell("chat")
def tools() -> None:
    """A forced tool call on the bundled engine."""
    assert isinstance(_parsed(instructor.Mode.TOOLS, MODEL), Sum)


@cell("chat")
def json_schema() -> None:
    """A JSON schema on the bundled engine."""
    assert isinstance(_parsed(instructor.Mode.JSON_SCHEMA, MODEL), Sum)


@cell("chat")
def upstream_tools() -> None:
    """A forced tool call on a generic upstream."""
    assert isinstance(_parsed(instructor.Mode.TOOLS, AGENT), Sum)


run()
