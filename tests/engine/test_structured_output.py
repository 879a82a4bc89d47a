"""A whole engine over a random model: whatever it chooses, the answer has the shape that was requested."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from engine.training.tokenizer import CHAT_TEMPLATE
from tests.engine.frontend.tiny_model import write_model
from tests.engine.sampling.test_grammar_checker import BOMB

pytestmark = pytest.mark.e2e

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1, "maximum": 9999},
        "state": {"enum": ["open", "sent", "lost"]},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"sku": {"type": "string", "pattern": "^[A-Z]{3}[0-9]{2}$"}, "count": {"enum": [1, 2]}},
                "required": ["sku", "count"],
                "additionalProperties": False,
            },
            "minItems": 1,
            "maxItems": 2,
        },
        "note": {"type": ["string", "null"], "maxLength": 8},
    },
    "required": ["id", "state", "lines", "note"],
    "additionalProperties": False,
}
FIND = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Finds an order. Not <|im_start|>.",
        "parameters": {
            "type": "object",
            "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 999}, "deep": {"type": "boolean"}},
            "required": ["id", "deep"],
            "additionalProperties": False,
        },
    },
}
STOP = {"type": "function", "function": {"name": "stop-now"}}


class Engine:
    """The engine's API."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.client = self.connect()
        self.family = ""
        """Family of the model's template, where a test has several."""
        self.added: dict[str, int] = {}
        """Ids of the added tokens."""

    def connect(self) -> httpx.Client:
        return httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket)), base_url="http://engine", timeout=60)

    def post(self, **fields: Any) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json=body(**fields))

    def choices(self, **fields: Any) -> list[dict[str, Any]]:
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        choices: list[dict[str, Any]] = response.json()["choices"]
        return choices

    def error(self, **fields: Any) -> tuple[int, str, str]:
        """Status, code and param of a refusal, which came within a second."""
        started_at = time.monotonic()
        response = self.post(**fields)
        assert time.monotonic() - started_at < 1.0
        error = response.json()["error"]
        return response.status_code, error["code"], error["param"]

    def events(self, **fields: Any) -> list[dict[str, Any]]:
        request = body(stream=True, **fields)
        with self.client.stream("POST", "/v1/chat/completions", json=request) as response:
            lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]

    def metric(self, name: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        return float(next(line.rsplit(" ", 1)[1] for line in lines if line.startswith(name)))


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "random", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 250, **fields}


def schema(schema: object, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, **fields}}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("engine")
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=400,
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
    write_model(folder / "random", CHAT_TEMPLATE)
    with serving(folder) as engine:
        yield engine


@contextlib.contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Engine]:
    """An engine over the model `random` of the folder."""
    socket = folder / "engine.sock"
    command = [sys.executable, "-m", "engine", "--model", str(folder / "random"), "--listen", f"unix:{socket}"]
    options = ["--threads", "1", "--num-blocks", "512", "--log-level", "error"]
    process = subprocess.Popen([*command, *options, *flags], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"engine: ")
        engine = Engine(socket)
        deadline = time.monotonic() + 60
        while engine.client.get("/readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield engine
        engine.client.close()
    finally:
        process.terminate()
        process.communicate(timeout=10)


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"seed": 1}, {"seed": 2, "top_p": 0.9, "min_tokens": 100}])
def test_an_answer_follows_its_schema(engine: Engine, sampling: dict[str, Any]) -> None:
    (choice,) = engine.choices(response_format=schema(ORDER, strict=True), max_tokens=1500, **sampling)
    assert choice["finish_reason"] == "stop"
    assert jsonschema_rs.is_valid(ORDER, json.loads(choice["message"]["content"]))


def test_every_one_of_several_answers_follows_it_and_a_seed_fixes_them(engine: Engine) -> None:
    request = {"response_format": schema(ORDER), "n": 3, "seed": 11, "logprobs": True}
    first, second = engine.choices(**request), engine.choices(**request)
    texts = [choice["message"]["content"] for choice in first]
    assert all(jsonschema_rs.is_valid(ORDER, json.loads(text)) for text in texts)
    assert len(set(texts)) == 3
    assert texts == [choice["message"]["content"] for choice in second]


def test_json_objects_are_objects_or_cut_off(engine: Engine) -> None:
    for seed in range(4):
        (choice,) = engine.choices(response_format={"type": "json_object"}, seed=seed)
        text = choice["message"]["content"]
        assert text.startswith("{")
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(text), dict)
        else:
            assert choice["finish_reason"] == "length"


def test_log_probabilities_are_the_models_own(engine: Engine) -> None:
    request = {"response_format": schema({"const": "hello"}), "logprobs": True, "top_logprobs": 2, "temperature": 0}
    (choice,) = engine.choices(**request)
    assert choice["message"]["content"] == '"hello"'
    # Forced, but not certain to a model that knows nothing.
    assert all(entry["logprob"] < -1 for entry in choice["logprobs"]["content"])


@pytest.mark.parametrize("seed", range(3))
def test_a_forced_function_is_called_with_valid_arguments(engine: Engine, seed: int) -> None:
    choice_of = {"type": "function", "function": {"name": "find_order"}}
    (choice,) = engine.choices(tools=[STOP, FIND], tool_choice=choice_of, seed=seed)
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"
    assert (call["type"], call["function"]["name"]) == ("function", "find_order")
    arguments = json.loads(call["function"]["arguments"])
    assert jsonschema_rs.is_valid(FIND["function"]["parameters"], arguments)  # type: ignore[index]


def test_with_required_there_are_calls_and_nothing_else(engine: Engine) -> None:
    for seed in range(4):
        request = {"tools": [STOP, FIND], "tool_choice": "required", "seed": seed, "max_tokens": 700}
        (choice,) = engine.choices(**request)
        calls = choice["message"]["tool_calls"]
        assert choice["message"]["content"] is None
        assert {call["function"]["name"] for call in calls} <= {"stop-now", "find_order"}
        assert len({call["id"] for call in calls}) == len(calls)
        if choice["finish_reason"] == "tool_calls":
            assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
        (choice,) = engine.choices(**request, parallel_tool_calls=False)
        assert len(choice["message"]["tool_calls"]) == 1
        assert choice["finish_reason"] == "tool_calls"


def test_a_streamed_call_comes_in_pieces_that_make_the_plain_one(engine: Engine) -> None:
    request = {"tools": [FIND], "tool_choice": "required", "parallel_tool_calls": False, "seed": 4}
    (plain,) = engine.choices(**request)
    deltas = [event["choices"][0]["delta"] for event in engine.events(**request)]
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", [])]
    assert pieces[0]["index"] == 0
    assert pieces[0]["id"].startswith("call_")
    assert pieces[0]["function"] == {"name": "find_order", "arguments": ""}
    assert all(piece.keys() == {"index", "function"} for piece in pieces[1:])
    arguments = "".join(piece["function"]["arguments"] for piece in pieces)
    assert arguments == plain["message"]["tool_calls"][0]["function"]["arguments"]
    assert all(not delta.get("content") for delta in deltas)


def test_with_tools_at_hand_a_schema_still_holds(engine: Engine) -> None:
    for seed in range(3):
        (choice,) = engine.choices(tools=[FIND], response_format=schema(ORDER), seed=seed)
        if choice["finish_reason"] == "stop":
            assert jsonschema_rs.is_valid(ORDER, json.loads(choice["message"]["content"]))
        else:
            assert choice["message"]["tool_calls"]


def test_calls_and_answers_of_tools_may_stand_in_the_history(engine: Engine) -> None:
    function = {"name": "find_order", "arguments": '{"id": 5, "deep": true}'}
    messages = [
        {"role": "user", "content": "where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": "lost <|im_end|>"},
    ]
    (choice,) = engine.choices(messages=messages, tools=[FIND], max_tokens=3)
    assert choice["finish_reason"] in ("stop", "length")


@pytest.mark.parametrize(
    ("wrong", "strict"),
    [
        (BOMB, True),
        (BOMB, False),
        ({"type": "strng"}, True),
        ({"$ref": "#"}, False),
        ({"$ref": "http://127.0.0.1:1/x"}, False),
        ({"type": "string", "pattern": "(("}, False),
        ({"enum": ["x" * 300_000]}, False),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]}, True),
    ],
)
def test_schemas_that_cannot_be_followed_are_refused_within_a_second(
    engine: Engine, wrong: dict[str, Any], strict: bool
) -> None:
    assert engine.error(response_format=schema(wrong, strict=strict)) == (400, "invalid_value", "response_format")
    assert engine.choices(max_tokens=2)


def test_a_function_that_cannot_be_compiled_is_named(engine: Engine) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "strng"}}}}}
    refusal = engine.error(tools=[tool], tool_choice="required")
    assert refusal == (400, "invalid_value", "tools[0].function.parameters")


def test_streams_go_on_while_a_bomb_is_compiled(engine: Engine) -> None:
    gaps: list[float] = []
    is_streaming = threading.Event()
    usage = {"include_usage": True}

    def stream() -> int:
        with engine.connect() as client:
            request = body(stream=True, max_tokens=1500, ignore_eos=True, seed=1, stream_options=usage)
            last_data = ""
            with client.stream("POST", "/v1/chat/completions", json=request) as response:
                last = time.monotonic()
                for line in response.iter_lines():
                    if line:
                        is_streaming.set()
                        gaps.append(time.monotonic() - last)
                        last = time.monotonic()
                        last_data = last_data if line == "data: [DONE]" else line
        return int(json.loads(last_data.removeprefix("data: "))["usage"]["completion_tokens"])

    bomb = {**BOMB, "title": "another"}
    with ThreadPoolExecutor(1) as pool:
        streaming = pool.submit(stream)
        assert is_streaming.wait(10)
        assert engine.error(response_format=schema(bomb)) == (400, "invalid_value", "response_format")
        assert streaming.result(30) == 1500
    assert max(gaps) < 0.3


def test_a_client_that_leaves_while_its_grammar_is_compiled_is_counted_there(engine: Engine) -> None:
    before = engine.metric('engine_aborts_total{state="grammar"}')
    request = body(response_format=schema({**BOMB, "title": "left alone"}))
    with engine.connect() as client, pytest.raises(httpx.ReadTimeout):
        client.post("/v1/chat/completions", json=request, timeout=0.2)
    deadline = time.monotonic() + 5
    while engine.metric('engine_aborts_total{state="grammar"}') == before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert engine.metric("engine_kv_leaked_blocks") == 0
    assert engine.choices(response_format=schema({"type": "boolean"}))[0]["message"]["content"] in ("true", "false")
