"""The matrix's own parts, and its short list: clients that the development environment has anyway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.__main__ import BEGIN, END, publish
from tests.clients.matrix import CLIENTS, HERE, CellResult, table
from tests.clients.product import running_product
from tests.clients.tool_caller import example_of, message_for

SHORT_LIST = ("openai_python", "anthropic_python", "langchain_client", "pydantic_ai_client")


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running_product(tmp_path_factory.mktemp("product")) as found:
        yield found


@pytest.mark.e2e
@pytest.mark.parametrize("script", SHORT_LIST)
def test_every_cell_of_a_client_is_green(product: dict[str, str], script: str) -> None:
    environment = {**os.environ, **product, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(HERE / "python" / f"{script}.py")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    cells = [json.loads(line.removeprefix("CELL ")) for line in ran.stdout.splitlines() if line.startswith("CELL ")]
    assert len(cells) >= 5, ran.stdout + ran.stderr
    assert [cell for cell in cells if cell["error"] is not None] == []


def test_every_client_has_its_script() -> None:
    assert [client.script for client in CLIENTS if not (HERE / client.script).is_file()] == []
    assert len({client.environment for client in CLIENTS}) == len(CLIENTS)


def test_the_table_counts_cells_and_names_the_red_ones() -> None:
    results = [
        CellResult("chat", "plain", None),
        CellResult("chat", "tools", "boom"),
        CellResult("models", "list", None),
    ]
    lines = table({"a client": ("1.2", results)}).splitlines()
    assert lines[0] == "| client | version | chat | models |"
    assert lines[2] == "| a client | 1.2 | 1 of 2 (not: tools) | 1 of 1 |"


def test_publishing_replaces_only_what_stands_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    publish("new", page)
    assert page.read_text() == f"before\n{BEGIN}new\n{END}after\n"


def test_a_page_without_marks_is_not_changed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n")
    with pytest.raises(SystemExit, match="no marks"):
        publish("new", page)
    assert page.read_text() == "text\n"


def test_examples_fit_their_schemas() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "kind": {"enum": ["a", "b"]}, "inner": {"$ref": "#/$defs/Inner"}},
        "required": ["n", "kind", "inner"],
        "$defs": {"Inner": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}},
    }
    assert example_of(schema) == {"n": 7, "kind": "a", "inner": {"x": "Paris"}}


def test_the_upstream_calls_a_tool_once_and_then_answers_with_its_output() -> None:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    messages = [{"role": "user", "content": "Use the tool."}]
    called = message_for({"messages": messages, "tools": tools})
    assert called["tool_calls"][0]["function"]["name"] == "weather"
    messages += [called, {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees"}]
    assert message_for({"messages": messages, "tools": tools})["content"] == "The tool answered: 18 degrees"
