"""Models behind the sockets of a start that names none."""

from __future__ import annotations

import pytest

from gateway.cli.supervisor import served_model
from gateway.cli.supervisor.served_model import (
    KV_MEMORY_BYTES,
    PACKAGED_MODEL,
    bundled_pair,
    installed_models,
    is_packaged_model_installed,
)


def test_the_packaged_model_is_there_with_the_pair() -> None:
    assert is_packaged_model_installed()
    assert [model.name for model in installed_models().values()] == [PACKAGED_MODEL, "penstock-small", "penstock-large"]
    assert {model.kv_memory_bytes for model in bundled_pair().values()} == {KV_MEMORY_BYTES}


@pytest.mark.parametrize("module", ["no_such_module", "json"])
def test_a_package_without_the_model_is_none(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_model, "PACKAGED_MODULE", module)
    assert not is_packaged_model_installed()
    assert [*installed_models()] == ["small", "large"]
