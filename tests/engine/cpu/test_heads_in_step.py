"""Heads that run within a step predict what they predict when they are called behind it."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.cpu.execution.heads import CompiledHeads
from engine.cpu.execution.model import CompiledModel
from engine.cpu.multi_step import argmax as likely
from engine.models.prediction_heads import HeadPredictions, PredictionHeads, StepPredictions
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.made_up_heads import made_up_heads
from tests.engine.models.paged import PagedRunner, Row

SIZE = 96
TEXTS = ([7, 8, 9], [11, 12, 13, 14, 15], [21])


class HeadsRunner:
    """Rows that decode, with drafts, and heads beside them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, num_threads: int, num_heads: int) -> None:
        save_checkpoint(make_reference("qwen3", hidden_size=SIZE, vocab_size=100), folder)
        self.runner = PagedRunner(folder, compiled_threads=num_threads)
        model = self.runner.model
        assert isinstance(model, CompiledModel)
        self.model = model
        weights = made_up_heads(SIZE, num_heads=num_heads, width=80)
        self.heads = CompiledHeads(model, PredictionHeads(weights, model.decoder))
        self.hidden = torch.empty(0)
        forward = model.forward

        def noting(*arguments: object) -> torch.Tensor:
            self.hidden = forward(*arguments)  # type: ignore[arg-type]
            return self.hidden

        monkeypatch.setattr(model, "forward", noting)

    def rows(self) -> list[Row]:
        """Each with one token to compute."""
        rows = [Row(list(text)) for text in TEXTS]
        for row in rows:
            if len(row.tokens) > 1:
                row.tokens, last = row.tokens[:-1], row.tokens[-1]
                self.runner.prefill(row, [16])
                row.tokens.append(last)
        return rows

    def step(self, drafts: list[list[int]]) -> tuple[list[list[int]], list[int]]:
        """The likeliest tokens at every position of each row, and which of these is the first that is no right draft;
        afterwards nothing was computed."""
        work = []
        for row, of_row in zip(self.rows(), drafts, strict=True):
            row.tokens += of_row
            work.append((row, 1 + len(of_row)))
        found = [logits.argmax(-1).tolist() for logits in self.runner.step(work)]
        places = []
        for of_row, tokens in zip(drafts, found, strict=True):
            pairs = zip(of_row, tokens, strict=False)
            places.append(len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))))
        return found, places

    def predicted(self, chosen: list[int], states: list[int]) -> StepPredictions:
        """What heads state behind these tokens that were chosen from these of the last step's states."""
        hidden = self.hidden[states].contiguous()
        logits = self.heads.predict_logits(hidden, torch.tensor(chosen)).numpy()
        predictions = HeadPredictions(*np.empty((2, *logits.shape[:2]), dtype=np.int64))
        likely.likeliest(logits, *predictions)
        return StepPredictions(chosen, predictions)


def drafts_of(runner: HeadsRunner) -> list[list[int]]:
    """A wrong one behind a right one; none; two right ones."""
    first, _ = runner.step([[], [], []])
    second, _ = runner.step([first[0], first[1], first[2]])
    return [[first[0][0], (second[0][1] + 1) % 100], [], [first[2][0], second[2][1]]]


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("num_heads", [1, 3])
def test_what_is_seen_stands_behind_each_rows_right_drafts(
    num_threads: int, num_heads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = HeadsRunner(tmp_path, monkeypatch, num_threads, num_heads)
    drafts = drafts_of(runner)
    plain, _ = runner.step(drafts)
    assert runner.heads.arrange(3, ())
    found, places = runner.step(drafts)
    seen = runner.heads.step_predictions()
    assert seen is not None
    assert found == plain
    assert places == [1, 0, 2]
    chosen = [tokens[place] for tokens, place in zip(found, places, strict=True)]
    starts = [0, *itertools.accumulate(1 + len(of_row) for of_row in drafts)]
    expected = runner.predicted(chosen, [start + place for start, place in zip(starts, places, strict=False)])
    assert seen.chosen == chosen
    assert np.array_equal(seen.predictions.tokens, expected.predictions.tokens)
    assert np.array_equal(seen.predictions.kinds, expected.predictions.kinds)
    assert runner.heads.step_predictions() is None
    runner.model.close()


def test_where_heads_do_not_run_the_step_chooses_and_nothing_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = HeadsRunner(tmp_path, monkeypatch, num_threads=2, num_heads=3)
    expected, _ = runner.step([[], [], []])
    assert runner.heads.arrange(3, (), runs_heads=False)
    found, _ = runner.step([[], [], []])
    assert found == expected
    assert runner.heads._chosen[:3].tolist() == [tokens[0] for tokens in found]
    assert runner.heads.step_predictions() is None
    assert runner.heads.arrange(3, ())
    runner.step([[], [], []])
    assert runner.heads.step_predictions() is not None
    runner.model.close()


def test_nothing_is_seen_where_all_answers_end_or_other_rows_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = HeadsRunner(tmp_path, monkeypatch, num_threads=2, num_heads=3)
    found, _ = runner.step([[], [], []])
    chosen = [tokens[0] for tokens in found]
    for stops, is_seen in ((chosen, False), (chosen[:2], len(set(chosen)) > 2), ((), True)):
        assert runner.heads.arrange(3, stops)
        runner.step([[], [], []])
        assert (runner.heads.step_predictions() is not None) is is_seen
    assert runner.heads.arrange(2, ())
    runner.step([[], [], []])
    assert runner.heads.step_predictions() is None
    runner.step([[], [], []])
    assert runner.heads.step_predictions() is None
    runner.model.close()


def test_more_rows_than_there_is_room_for_are_called_about_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = HeadsRunner(tmp_path, monkeypatch, num_threads=1, num_heads=3)
    assert runner.heads.arrange(8, ())
    assert not runner.heads.arrange(9, ())
    assert not runner.heads.arrange(0, ())
    runner.model.close()
