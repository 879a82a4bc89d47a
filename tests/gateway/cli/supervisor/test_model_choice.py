"""Which models a start serves, by its flags, its policy and what is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.cli.supervisor import served_model
from gateway.cli.supervisor.model_choice import ModelFlagError, choose_models
from gateway.cli.supervisor.model_facts import ModelFacts
from gateway.config.settings import GatewayConfig, bundled_policy_path, first_run_policy_path
from gateway.config.sources import config_of


@pytest.fixture
def config(tmp_path: Path) -> GatewayConfig:
    return config_of({"process.runtime_dir": tmp_path})


@pytest.fixture
def own(config: GatewayConfig, tmp_path: Path) -> GatewayConfig:
    """Settings with a policy of the user's own."""
    return replace(config, policy=replace(config.policy, document=tmp_path / "policy.yaml"))


def no_facts(texts: Sequence[str]) -> Sequence[ModelFacts]:
    raise AssertionError(f"{texts}: nothing has to be found")


def facts(texts: Sequence[str]) -> Sequence[ModelFacts]:
    return [
        ModelFacts(name="r", url=text)
        if text.startswith("http")
        else ModelFacts(name=text[1:], folder=text, num_bytes=9)
        for text in texts
    ]


def test_a_first_run_is_the_real_model_and_the_shop_with_small_kv_pools(config: GatewayConfig) -> None:
    choice = choose_models(config, {}, no_facts)
    assert choice.document == first_run_policy_path()
    assert [*choice.served] == ["model", "small", "large"]
    assert sum(model.kv_memory_bytes or 0 for model in choice.served.values()) <= 512 * 1024**2
    assert choice.note is None
    assert choice.applied(config).policy.is_in_store


def test_without_the_real_model_the_pair_serves_and_the_user_learns_how_to_get_it(
    config: GatewayConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_model, "PACKAGED_MODULE", "no_such_module")
    choice = choose_models(config, {}, no_facts)
    assert choice.document == bundled_policy_path()
    assert [*choice.served] == ["small", "large"]
    assert "penstock models pull smollm2-135m-instruct" in (choice.note or "")


def test_the_bundled_pair_by_name_is_the_bundled_policy(config: GatewayConfig) -> None:
    choice = choose_models(config, {"small": "penstock-small", "large": "penstock-large"}, no_facts)
    assert (choice.document, choice.text, choice.note) == (bundled_policy_path(), None, None)


def test_one_model_gets_a_written_policy_and_all_the_memory(config: GatewayConfig, tmp_path: Path) -> None:
    choice = choose_models(config, {"model": "/m"}, facts)
    assert choice.served["model"].source == "/m"
    assert choice.served["model"].kv_memory_bytes is None
    choice.write()
    assert choice.document == tmp_path / "models.yaml"
    assert "penstock up --model /m" in choice.document.read_text()
    assert not choice.applied(config).policy.is_in_store


def test_two_engines_share_the_memory_and_a_server_needs_none(config: GatewayConfig) -> None:
    free = 4 * 1024**3
    both = choose_models(config, {"small": "/a", "large": "/b"}, facts, free_bytes=free)
    bounds = {model.kv_memory_bytes for model in both.served.values()}
    assert bounds == {(free - 2 * 9 * 4) // 4}
    assert "nothing is known of this pair yet: a begins every answer" in (both.note or "")
    remote = choose_models(config, {"small": "/a", "large": "http://host"}, facts, free_bytes=free)
    assert [*remote.served] == ["small"]
    assert remote.served["small"].kv_memory_bytes is None


def test_an_own_policy_stays_and_the_flags_choose_what_is_behind_its_sockets(own: GatewayConfig) -> None:
    choice = choose_models(own, {"small": "/a"}, facts)
    assert (choice.document, choice.text) == (own.policy.document, None)
    assert choice.served["small"].source == "/a"
    assert choice.served["large"].source == "penstock-large"


def test_flags_that_do_not_go_together_are_named(config: GatewayConfig, own: GatewayConfig) -> None:
    with pytest.raises(ModelFlagError, match="--model: goes without"):
        choose_models(config, {"model": "/m", "small": "/a"}, no_facts)
    with pytest.raises(ModelFlagError, match="--large: is needed"):
        choose_models(config, {"small": "/a"}, no_facts)
    with pytest.raises(ModelFlagError, match="--large: with a policy of your own, name servers there"):
        choose_models(own, {"large": "http://host"}, no_facts)
