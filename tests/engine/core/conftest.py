"""One tiny checkpoint for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.engine.core.checkpoints import write_checkpoint


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


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices are slower on several threads, above all where others use the cores too."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)
