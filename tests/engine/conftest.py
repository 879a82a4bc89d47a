"""One tiny checkpoint for the whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cpu.jit.compiler import keep_compiled_code
from tests.engine.core.checkpoints import write_checkpoint


@pytest.fixture(scope="session", autouse=True)
def _compiled_code() -> None:
    """Compiled code is kept for the next run, as every core process keeps it."""
    keep_compiled_code()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Qwen3 model."""
    folder = tmp_path_factory.mktemp("qwen3")
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="session")
def other_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same shape."""
    folder = tmp_path_factory.mktemp("other")
    write_checkpoint(folder, seed=8)
    return folder
