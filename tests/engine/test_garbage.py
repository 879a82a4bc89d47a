"""What a process of the engine has loaded is not traversed by later collections; garbage that comes later is freed."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from engine.garbage import exclude_loaded

_PROGRAM = """
import gc
from engine.core import process
process.run_core = lambda *_, on_loaded, **__: on_loaded()
import socket
socket.socket.connect = lambda *_: None
before = len(gc.get_objects())
process.main(["--socket", "s", "--config", "{}"])
print(before, len(gc.get_objects()), gc.get_freeze_count())
"""


class Node:
    """One that may refer to itself."""

    other: Node


@pytest.fixture
def frozen() -> Iterator[None]:
    exclude_loaded()
    yield
    gc.unfreeze()


def test_later_cycles_are_still_freed(frozen: None) -> None:
    node = Node()
    node.other = node
    gone = weakref.ref(node)
    del node

    gc.collect()

    assert gone() is None


def test_a_core_that_has_loaded_leaves_little_to_traverse() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    before, after, num_frozen = map(int, done.stdout.split())
    assert num_frozen > 0.9 * before
    assert after < 0.1 * before
