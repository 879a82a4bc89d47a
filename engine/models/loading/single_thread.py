"""One thread of torch for work of many small operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread(*, is_wanted: bool) -> Iterator[None]:
    """Run torch's operations on one thread within the context, if wanted.

    Codes are unpacked and packed in pieces that stay in the processor's cache. Between operations that short, threads
    wait for each other longer than they compute: on two busy cores six times as long.
    """
    num_threads = torch.get_num_threads()
    if is_wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
