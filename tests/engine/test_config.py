"""Settings of the engine: a wrong one is named with what was expected, and none is lost on its way to the core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import CoreConfig, EngineConfigError, FrontConfig, core_config_json, parse_config

HERE = Path("/models/tiny")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_size": 0}, "block_size: expected a positive integer, got 0"),
        ({"num_blocks": -1}, "num_blocks: expected 0 .automatic. or more, got -1"),
        ({"memory_utilization": -0.1}, "memory_utilization"),
        ({"memory_utilization": 1.01}, "memory_utilization"),
        ({"max_queue_wait_s": float("nan")}, "max_queue_wait_s: expected a positive number"),
        ({"prefill_slack_ratio": 1.0}, "prefill_slack_ratio: expected more than 1"),
        ({"speculation": "draft"}, "draft needs a draft model"),
        ({"overlap": "on", "speculation": "ngram"}, "overlap: on does not go with speculation"),
        ({"blocksize": 16, "colour": 1}, "unknown settings: blocksize, colour"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineConfigError, match=message):
        CoreConfig.of(HERE, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"otlp_endpoint": "localhost:4318"}, "otlp_endpoint"), ({"standby_cores": -1}, "standby")],
)
def test_a_setting_of_the_front_that_makes_no_sense_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineConfigError, match=message):
        FrontConfig(listen="unix:/x", model_name="tiny", **settings)


def test_every_setting_reaches_the_core_as_it_was_given() -> None:
    config = CoreConfig.of(
        HERE, block_size=32, draft_model_dir=Path("/models/smaller"), speculation="auto", dtype="float16"
    )
    assert parse_config(core_config_json(config)) == config
    assert parse_config('{"model_dir": "/models/tiny"}') == CoreConfig(model_dir=HERE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--config: "),
        ("{}", "model_dir is missing"),
        ('{"model_dir": "/m", "colour": 1}', "unknown settings: colour"),
        ('{"model_dir": "/m", "block_size": "16"}', r"at `\$.block_size`"),
        ('{"model_dir": "/m", "dtype": "int3"}', r"at `\$.dtype`"),
        ('{"model_dir": 5}', r"at `\$.model_dir`"),
    ],
)
def test_a_configuration_in_json_is_refused_by_the_field_at_fault(text: str, message: str) -> None:
    with pytest.raises(EngineConfigError, match=message):
        parse_config(text)


def test_a_changed_copy_keeps_every_other_setting_and_is_checked_again() -> None:
    config = CoreConfig.of(HERE, block_size=32, num_threads=2)
    changed = config.changed(block_size=8)
    assert changed.settings() == {**config.settings(), "block_size": 8}
    with pytest.raises(EngineConfigError, match="block_size"):
        config.changed(block_size=0)
