"""What is being compiled is reported before it begins, for a compiler that crashes reports nothing afterwards."""

from __future__ import annotations

import threading

import pytest

from engine.cpu.jit.failure import CompileError, compilation_reported_to, reported_as_compile_error


def test_the_listener_knows_at_each_moment_what_is_compiled() -> None:
    reports: list[str] = []

    with compilation_reported_to(reports.append), reported_as_compile_error("module"):
        with reported_as_compile_error("kernel"):
            assert reports == ["module", "kernel"]
        assert reports[-1] == "module"

    assert reports == ["module", "kernel", "module", ""]


def test_an_exception_ends_the_compilation_too() -> None:
    reports: list[str] = []

    with pytest.raises(CompileError), compilation_reported_to(reports.append), reported_as_compile_error("kernel"):
        raise KeyError("llvm")

    assert reports == ["kernel", ""]


def test_other_threads_and_later_work_are_not_reported() -> None:
    reports: list[str] = []

    def compile_elsewhere() -> None:
        with reported_as_compile_error("elsewhere"):
            pass

    with compilation_reported_to(reports.append):
        thread = threading.Thread(target=compile_elsewhere)
        thread.start()
        thread.join()
    with reported_as_compile_error("later"):
        pass

    assert not reports
