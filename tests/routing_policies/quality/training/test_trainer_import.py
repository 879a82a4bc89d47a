"""A gateway without scikit-learn predicts, and states what training needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gateway.cli.outcomes.quality_training import TrainingError, read_training_data
from routing_policies.quality.training.learning import learned_of
from routing_policies.quality.training.pair_trainer import PairTrainer
from routing_policies.quality.training.trainer_import import TrainingUnavailable, import_trainer
from tests.routing_policies.quality.labels import PAIR, labels

MODULES = ("feature_table", "guarding", "members", "pair_trainer")


@pytest.fixture
def without_scikit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, f"routing_policies.quality.training.{name}", raising=False)
    monkeypatch.delitem(sys.modules, "routing_policies.estimation.tree_fitting", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn", None)


def test_the_trainer_is_imported_where_scikit_learn_is() -> None:
    assert import_trainer() is PairTrainer


@pytest.mark.usefixtures("without_scikit")
def test_without_it_every_way_to_train_names_the_extra() -> None:
    with pytest.raises(TrainingUnavailable, match=r"pip install 'penstock\[learning\]'"):
        import_trainer()
    with pytest.raises(TrainingUnavailable, match=r"penstock\[learning\]"):
        learned_of(labels(1, 20), None)
    with pytest.raises(TrainingError, match=r"penstock\[learning\]"):
        read_training_data([Path("outcomes.jsonl")], *PAIR)
