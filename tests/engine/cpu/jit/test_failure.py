"""What is being compiled is told before it begins, for a compiler that crashes tells nothing afterwards."""

from __future__ import annotations

import threading

import pytest

from engine.cpu.jit.failure import CompileError, compilation_told_to, reported_as_compile_error


def test_the_listener_knows_at_each_moment_what_is_compiled() -> None:
    told: list[str] = []

    with compilation_told_to(told.append), reported_as_compile_error("module"):
        with reported_as_compile_error("kernel"):
            assert told == ["module", "kernel"]
        assert told[-1] == "module"

    assert told == ["module", "kernel", "module", ""]


def test_an_exception_ends_the_compilation_too() -> None:
    told: list[str] = []

    with pytest.raises(CompileError), compilation_told_to(told.append), reported_as_compile_error("kernel"):
        raise KeyError("llvm")

    assert told == ["kernel", ""]


def test_other_threads_and_later_work_are_not_told_of() -> None:
    told: list[str] = []

    def compile_elsewhere() -> None:
        with reported_as_compile_error("elsewhere"):
            pass

    with compilation_told_to(told.append):
        thread = threading.Thread(target=compile_elsewhere)
        thread.start()
        thread.join()
    with reported_as_compile_error("later"):
        pass

    assert not told
