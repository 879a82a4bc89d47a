"""A whole engine over a random model that thinks: its thoughts are free, and the answer behind them is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.engine.frontend.reasoning_models import MODELS
from tests.engine.test_structured_output import FIND, ORDER, Engine, schema, serving

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", params=["deepseek_r1", "qwen3", "gpt_oss"])
def thinking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("engine")
    torch.manual_seed(5)
    config = Qwen3Config(
        vocab_size=420,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=2048,
    )
    model: Any = Qwen3ForCausalLM(config)
    model.save_pretrained(folder / "random")
    MODELS[request.param].write(folder / "random")
    with serving(folder, "--no-compiled-steps") as engine:
        engine.family = request.param
        engine.added = added_tokens(folder / "random")
        yield engine


def added_tokens(folder: Path) -> dict[str, int]:
    spec = json.loads((folder / "tokenizer.json").read_text())
    return {token["content"]: token["id"] for token in spec["added_tokens"]}


def wishes(engine: Engine) -> dict[str, Any]:
    """Bias that makes a random model end its thoughts after some tokens, since it has no reason to."""
    if engine.family == "gpt_oss":
        return {"logit_bias": {str(engine.added["<|end|>"]): 5, str(engine.added["<|channel|>"]): 5}}
    return {"logit_bias": {str(engine.added["</think>"]): 5}}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_answer_follows_its_schema_behind_free_thoughts(thinking: Engine, seed: int) -> None:
    fields = {"response_format": schema(ORDER, strict=True), "max_tokens": 1900, "seed": seed, **wishes(thinking)}
    (choice,) = thinking.choices(**fields)
    assert choice["finish_reason"] == "stop"
    assert jsonschema_rs.is_valid(ORDER, json.loads(choice["message"]["content"]))
    events = thinking.events(**fields)
    deltas = [event["choices"][0]["delta"] for event in events]
    for member in ("content", "reasoning_content"):
        assert "".join(delta.get(member) or "" for delta in deltas) == (choice["message"].get(member) or "")


def test_some_answer_has_thoughts(thinking: Engine) -> None:
    """The schema would not let them through, if it bound them, too."""
    found = []
    for seed in range(6):
        fields = {"response_format": schema(ORDER, strict=True), "max_tokens": 1900, "seed": seed, **wishes(thinking)}
        body = thinking.post(**fields).json()
        found.append(body["choices"][0]["message"].get("reasoning_content", ""))
        num = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert 0 <= num < body["usage"]["completion_tokens"]
        assert num or not found[-1]
    if thinking.family == "deepseek_r1":  # here the prompt opens them
        assert any(found)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_forced_call_follows_free_thoughts(thinking: Engine, seed: int) -> None:
    if thinking.family == "deepseek_r1":
        status, code, param = thinking.error(tools=[FIND])
        assert (status, code, param) == (400, "unsupported_parameter", "tools")
        return
    fields = {"tools": [FIND], "tool_choice": "required", "parallel_tool_calls": False, "seed": seed}
    (choice,) = thinking.choices(max_tokens=1900, **fields, **wishes(thinking))
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    parameters = FIND["function"]["parameters"]  # type: ignore[index]
    assert jsonschema_rs.is_valid(parameters, json.loads(call["function"]["arguments"]))
