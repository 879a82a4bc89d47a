"""The examples of `docs/extending.md` do what the page states, and the page shows them as they are."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.models.config.config_reader import ModelConfigError
from engine.models.families import registry
from engine.models.families.registry import FAMILIES, ModelFamily
from gateway.store.base import Store
from routing_policies.filters import Health
from routing_policies.pickers import Best
from routing_policies.profile import Profile, WeightedScorer
from routing_policies.scorers.order import Order
from routing_policies.views import FIRST_ATTEMPT, DeploymentView
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.examples import seed_oss
from tests.docs.examples.light_load import LightLoad
from tests.docs.examples.memory_store import MemoryStore
from tests.docs.examples.repeat_drafter import RepeatDrafter
from tests.engine.core.checkpoints import write_checkpoint
from tests.engine.core.tiny_core import PROMPTS, TinyCore
from tests.engine.models.paged import PagedRunner, Row
from tests.gateway.store.test_base import TestChanges, TestEntries, TestHolds, TestLog, TestMeters

__all__ = ["TestChanges", "TestEntries", "TestHolds", "TestLog", "TestMeters"]
"""The contract of every store, run here against the one of the page."""

EXAMPLES: Final = ROOT / "tests" / "docs" / "examples"


def test_the_page_shows_every_example_as_it_is() -> None:
    shown = {block.file_name: block.text for block in blocks_of("docs/extending.md") if block.file_name}
    files = {path.name: f"# {path.name}\n{path.read_text()}" for path in EXAMPLES.glob("[a-z]*.py")}
    assert shown == files


class TestScorer:
    def test_the_lighter_deployment_wins_however_the_route_lists_them(self) -> None:
        scorers = (WeightedScorer(scorer=LightLoad(), weight=4.0), WeightedScorer(scorer=Order(), weight=1.0))
        profile = Profile(name="light", filters=(Health(),), scorers=scorers, picker=Best())
        busy, idle = (
            DeploymentView(id=name, model="m", is_ready=True, in_flight=taken, max_in_flight=64)
            for name, taken in (("busy", 60), ("idle", 8))
        )
        assert profile.decide([busy, idle], FIRST_ATTEMPT, random.Random(1)).deployment == "idle"

    def test_equal_candidates_get_equal_scores_between_0_and_1(self) -> None:
        views = [
            DeploymentView(id=str(taken), model="m", is_ready=True, in_flight=taken, max_in_flight=8)
            for taken in (0, 4, 4, 6, 8, 9)
        ]
        assert LightLoad().scores(views) == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]


@pytest.fixture
def seed_oss_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry with one more line."""
    families = {**FAMILIES, "seed_oss": ModelFamily(seed_oss.ARCHITECTURE, seed_oss.read_traits)}
    monkeypatch.setattr(registry, "FAMILIES", families)


@pytest.mark.usefixtures("seed_oss_family")
class TestModelFamily:
    def test_logits_equal_those_of_transformers(self, tmp_path: Path) -> None:
        reference = _random_model("seed_oss", attention_out_bias=True)
        reference.save_pretrained(tmp_path)
        tokens = [(7 * index * index + 3) % 97 for index in range(40)]
        logits = PagedRunner(tmp_path, shuffle_seed=5).prefill(Row(list(tokens)), [17, 23])
        with torch.inference_mode():
            expected = reference(torch.tensor([tokens])).logits[0]
        assert (logits - expected).abs().max() < 1e-4

    def test_a_wrong_field_is_named(self, tmp_path: Path) -> None:
        config = {"model_type": "seed_oss", "num_hidden_layers": 2, "attention_bias": "yes"}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelConfigError, match="attention_bias"):
            registry.read_model_config(tmp_path)


def _random_model(model_type: str, **changes: Any) -> Any:
    """A tiny model of transformers with random weights, norms and biases included."""
    shape = {"vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512}
    nobody = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = AutoConfig.for_model(model_type=model_type, **shape, **heads, **nobody, **changes)
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
    return model


@pytest.fixture
def store() -> Store:
    """The store of the page, for the contract's tests."""
    return MemoryStore()


@pytest.fixture
def space() -> str:
    """A space of the contract's tests."""
    return "test"


class TestProposer:
    def test_answers_are_those_without_draft_tokens(self, tmp_path: Path) -> None:
        write_checkpoint(tmp_path)
        plain = TinyCore(tmp_path).answers(PROMPTS, max_tokens=48)
        core = TinyCore(tmp_path, drafter=lambda _: RepeatDrafter())
        assert core.answers(PROMPTS, max_tokens=48) == plain
        assert core.tally.drafted_tokens >= core.tally.accepted_tokens > 0
