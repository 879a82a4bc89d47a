"""Routers on one's own outcomes: held-out prompts, intervals by resampling, and files that are of no use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from loadtests.routing import routing_set
from loadtests.routing.routing_curve import Scores
from loadtests.routing.routing_set import interval_of, set_results


def _file(
    path: Path, num: int, *, models: Sequence[str] = ("s", "l"), is_better: bool = True, has_kinds: bool = True
) -> Path:
    rng = np.random.default_rng(1)
    lines = []
    for number in range(num):
        is_hard = rng.random() < 0.5
        text = f"Prove lemma {number} of the theory." if is_hard else f"Add {number} and 7."
        small = float(rng.random() < (0.2 if is_hard else 0.9))
        scores = [small, 1.0 if is_better else 0.0, 0.5]
        outcomes = dict(zip(models, scores, strict=False))
        kind = ("proof" if is_hard else "sum") if has_kinds else ""
        lines.append({"prompt": text, "category": kind, "outcomes": outcomes})
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture
def by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    def embed(texts: Sequence[str], folder: Path) -> tuple[NDArray[np.float32], str]:
        return np.array([[1.0, len(text) / 40] for text in texts], dtype=np.float32), "e"

    monkeypatch.setattr(routing_set, "embedded", embed)


@pytest.mark.usefixtures("by_length")
def test_every_router_has_an_interval_and_every_kind_is_left_out_once(tmp_path: Path) -> None:
    notes: list[str] = []
    found = set_results([_file(tmp_path / "set.jsonl", 450)], (None, None), tmp_path, notes)
    for router in ("penstock", "penstock_untold", "prompt_length", "category_table", "knn_20", "logistic_regression"):
        low, value, high = (found[f"{router}_apgr{end}"] for end in ("_low", "", "_high"))
        assert isinstance(low, float) and isinstance(value, float) and isinstance(high, float)  # noqa: PT018
        assert 0.0 < low <= value <= high
    assert float(str(found["penstock_apgr"])) > 0.65
    assert (found["num_prompts"], found["kinds_left_out"], len(notes)) == (450, 2, 2)


@pytest.mark.usefixtures("by_length")
@pytest.mark.parametrize(("num", "has_kinds"), [(210, False), (220, True)])
def test_nothing_is_left_out_without_kinds_or_where_too_few_prompts_would_stay(
    tmp_path: Path, num: int, has_kinds: bool
) -> None:
    found = set_results([_file(tmp_path / "set.jsonl", num, has_kinds=has_kinds)], (None, None), tmp_path, [])
    assert "kinds_left_out" not in found
    assert float(str(found["penstock_apgr"])) > 0.5


def test_equal_prompts_are_in_one_fold_and_each_prompt_is_held_out_once() -> None:
    texts = [f"prompt {number % 40}" for number in range(120)]
    held_out = []
    for train, test in routing_set._folds(texts):
        assert not {texts[row] for row in train} & {texts[row] for row in test}
        assert sorted([*train, *test]) == list(range(120))
        held_out += test.tolist()
    assert sorted(held_out) == list(range(120))


@pytest.mark.usefixtures("by_length")
def test_intervals_from_few_different_scores_come_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    rows = [{"prompt": f"Add {number} and 7.", "outcomes": {"s": int(number > 3), "l": 1}} for number in range(220)]
    path.write_text("\n".join(map(json.dumps, rows)))
    notes: list[str] = []
    set_results([path], (None, None), tmp_path, notes)
    assert notes == ["the models differ on 4 prompts alone, so the intervals are too narrow"]


@pytest.mark.usefixtures("by_length")
def test_a_kind_that_is_not_left_out_is_named_with_the_reason(tmp_path: Path) -> None:
    path = _file(tmp_path / "set.jsonl", 240)
    equal = [{"prompt": f"Copy {number}.", "category": "copy", "outcomes": {"s": 1, "l": 1}} for number in range(100)]
    few = [{"prompt": f"Sort {number}.", "category": "sort", "outcomes": {"s": 0, "l": 1}} for number in range(7)]
    path.write_text("\n".join([path.read_text(), *map(json.dumps, equal + few)]))
    notes: list[str] = []
    set_results([path], (None, None), tmp_path, notes)
    assert "not left out, because the models differ by less than 0.02: copy (0.000)" in notes
    assert "not left out, with fewer than 100 prompts: sort (7)" in notes


def test_the_interval_is_that_of_resampled_prompts() -> None:
    rng = np.random.default_rng(3)
    scores = Scores((rng.random(2000) < 0.5).astype(float), (rng.random(2000) < 0.8).astype(float))
    value, low, high = interval_of(scores, rng.random(2000))
    assert low < value < high
    assert 0.5 * scores.interval() < (high - low) / 2 < 2.0 * scores.interval()


@pytest.mark.parametrize(
    ("num", "models", "is_better", "names", "message"),
    [
        (10, ("s", "l"), True, (None, None), "10 different prompts have outcomes of both, at least 200"),
        (210, ("s", "l", "x"), True, (None, None), "name --weak and --strong; the files have outcomes of l, s, x"),
        (210, ("s", "l"), False, ("s", "l"), "l is no better than s"),
        (210, ("s", "l"), True, ("s", None), "name both --weak and --strong, or neither"),
    ],
)
def test_useless_files_are_explained(
    tmp_path: Path,
    num: int,
    models: Sequence[str],
    is_better: bool,
    names: tuple[str | None, str | None],
    message: str,
) -> None:
    path = _file(tmp_path / "set.jsonl", num, models=models, is_better=is_better)
    with pytest.raises(SystemExit, match=message):
        set_results([path], names, tmp_path, [])
