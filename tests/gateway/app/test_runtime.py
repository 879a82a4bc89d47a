"""What all parts of one process share, and what it is started in."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gateway.app.app import Gateway
from gateway.app.runtime import Surroundings
from gateway.config.sources import config_of
from gateway.policies.policy_file import PolicyFileError
from tests.gateway.stack import policy_text


def test_a_ca_file_that_is_missing_stops_the_start_with_its_name(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace(f"unix:{tmp_path}/small.sock", "https://host/v1")
    text = text.replace("model: tiny,", "model: tiny, tls: {ca_file: /nonexistent/ca.pem}, ")
    (tmp_path / "policy.yaml").write_text(text)
    config = config_of({"policy.document": tmp_path / "policy.yaml", "process.runtime_dir": tmp_path})
    with open(tmp_path / "log", "wb") as log:
        gateway = Gateway(config, log_stream=log, around=Surroundings(environment={}))
        with pytest.raises(PolicyFileError, match=r"deployments\.small\.tls\.ca_file: /nonexistent/ca\.pem: not a"):
            gateway.control.file.load()


def test_request_ids_cannot_be_predicted_from_earlier_ones() -> None:
    assert isinstance(Surroundings().rng, random.SystemRandom)
