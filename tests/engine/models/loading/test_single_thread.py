"""Threads of torch within and behind the context."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.models.loading.single_thread import single_thread


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("is_wanted", "num_threads"), [(True, 1), (False, 3)])
def test_the_number_of_threads_is_that_of_before_behind_the_context(is_wanted: bool, num_threads: int) -> None:
    with single_thread(is_wanted=is_wanted):
        assert torch.get_num_threads() == num_threads
    assert torch.get_num_threads() == 3


def test_a_failure_restores_the_threads() -> None:
    with pytest.raises(OSError, match="gone"), single_thread(is_wanted=True):
        raise OSError("gone")
    assert torch.get_num_threads() == 3
