"""Tests of the runner compute on one thread, as those of the core do."""

from tests.engine.core.conftest import one_thread

__all__ = ["one_thread"]
