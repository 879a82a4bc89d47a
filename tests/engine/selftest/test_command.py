"""The self-test finds speculation lossless, and reports it when it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.__main__ import main
from engine.spec_decode import verifier
from engine.step.step_output import SequenceResult
from tests.engine.core.checkpoints import write_checkpoint

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and another that drafts for it."""
    large, small = tmp_path_factory.mktemp("large"), tmp_path_factory.mktemp("small")
    write_checkpoint(large)
    write_checkpoint(small, seed=8)
    return large, small


def run(models: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    large, small = models
    arguments = ("--model", str(large), "--draft-model", str(small), "--threads", "1", "--samples", "60", "--json")
    status = main(["selftest", *arguments])
    return status, json.loads(capsys.readouterr().out)


def test_speculation_is_lossless(models: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    status, found = run(models, capsys)
    assert (status, found["lossless"]) == (0, 1)
    assert list(found)[-1] == "lossless"


def test_drafts_accepted_unseen_are_found_out(
    models: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def accept_all(drafts: tuple[int, ...], token_ids: list[int], logprobs: list[object], *_: object) -> SequenceResult:
        return SequenceResult([*drafts, token_ids[-1]], logprobs)  # type: ignore[arg-type]

    monkeypatch.setattr(verifier, "accept", accept_all)
    status, found = run(models, capsys)
    assert (status, found["lossless"]) == (1, 0)


def test_a_model_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--model", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
