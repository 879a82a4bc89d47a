"""A core whose compiler fails starts in torch, and says what failed, what it costs and what mends it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from engine.config import CoreConfig
from engine.core.startup.compiled_code import load_with_compiled_code
from engine.cpu.jit.failure import CompileError, reported_as_compile_error
from engine.protocol import Shutdown
from tests.engine.core.checkpoints import transformers_greedy
from tests.engine.core.test_process import core_process, greedy_add

_TIMEOUT_S = 60.0

NO_NUMBA = """\
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numba":
            raise ImportError("Numba needs NumPy 2.4 or less. Got NumPy 9.9.")

sys.meta_path.insert(0, Finder())
"""
NO_PRODUCT = """\
from numba.core import ccallback

compile = ccallback.CFunc.compile

def fail(code):
    if code.__name__.endswith("_product"):
        raise KeyError("llvm.masked.store.v16f32")
    compile(code)

ccallback.CFunc.compile = fail
"""
NO_ATTENTION = NO_PRODUCT.replace('endswith("_product")', 'startswith("attend_")')
UNKNOWN_PROCESSOR = """\
import llvmlite.binding
import numba

def fail():
    raise RuntimeError("getHostCPUFeatures() failed")

llvmlite.binding.get_host_cpu_features = fail
"""
NO_LOOKUP = """\
from numba.core.dispatcher import Dispatcher

compile = Dispatcher.compile

def fail(self, signature):
    if self.py_func.__name__ == "find_drafts":
        raise AssertionError("Failed in nopython mode pipeline\\n\\nand pages more")
    return compile(self, signature)

Dispatcher.compile = fail
"""


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (NO_NUMBA, "numba: ImportError: Numba needs NumPy 2.4 or less. Got NumPy 9.9."),
        (NO_PRODUCT, "_product: KeyError: 'llvm.masked.store.v16f32'"),
        (NO_ATTENTION, "KeyError: 'llvm.masked.store.v16f32'"),
        (UNKNOWN_PROCESSOR, "numba: RuntimeError: getHostCPUFeatures() failed"),
        (NO_LOOKUP, "engine.cpu.multi_step.ngram: AssertionError: Failed in nopython mode pipeline"),
    ],
    ids=["import", "product", "attention", "processor", "lookup"],
)
def test_the_core_serves_in_torch(tmp_path: Path, checkpoint: Path, fault: str, reason: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(fault)  # Python imports it at its start
    environment = {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    config = {"model_dir": str(checkpoint), "device": "cpu", "num_threads": 1, "num_blocks": 64, "speculation": "ngram"}
    with core_process(tmp_path, environment, **config) as (front, process):
        phases, ready = front.wait_until_ready()
        assert [phase.name for phase in phases] == ["import", "weights", "kv_pool", "warm_up"]
        assert ready.cpu_kernels is not None
        assert ready.cpu_kernels.steps == "torch"
        assert ready.cpu_kernels.reason.endswith(reason)
        assert (ready.speculates, ready.resumes_exactly, ready.processor) == (False, False, "")
        prompt = [3, 14, 15, 92, 65, 35] * 7
        front.send(greedy_add(1, prompt, 12))
        texts, _ = front.ends(1)
        assert texts[1] == transformers_greedy(checkpoint, prompt, 12)
        front.send(Shutdown())
        assert process.wait(_TIMEOUT_S) == 0
    log = (tmp_path / "core.log").read_text()
    (line,) = [line for line in log.splitlines() if "ERROR" in line or "WARNING" in line]
    assert f"{reason}): steps run in torch, which is slower, and no tokens are drafted" in line
    assert "mends a damaged or mismatched installation" in line
    assert "Traceback" not in log


def test_what_is_loaded_before_the_failure_is_loaded_again_without_compiled_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loads: list[tuple[bool, str, str]] = []

    def load(config: CoreConfig, failure: str) -> str:
        loads.append((config.compute.compiled_steps, config.drafting.speculation, failure))
        with reported_as_compile_error("kernel"):
            if not failure:
                raise MemoryError("LLVM\nand more")
        return "loaded"

    config = CoreConfig.of(tmp_path, compiled_steps=False, speculation="off", max_num_seqs=3)
    with caplog.at_level(logging.INFO):
        found, loaded = load_with_compiled_code(config, load)
    assert loaded == "loaded"
    assert loads == [(False, "off", ""), (False, "off", "kernel: MemoryError: LLVM")]
    assert found.batch.max_num_seqs == 3
    assert len(caplog.records) == 1


def test_nothing_is_compiled_after_a_crash_of_the_compiler(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def load(config: CoreConfig, failure: str) -> tuple[bool, str, str]:
        return config.compute.compiled_steps, config.drafting.speculation, failure

    crash = "SIGILL ended the last core while it compiled find_drafts"
    config = CoreConfig.of(tmp_path, speculation="ngram", max_num_seqs=3)
    found, loaded = load_with_compiled_code(config, load, crash)

    assert loaded == (False, "off", crash)
    assert found.batch.max_num_seqs == 3
    (record,) = caplog.records
    assert f"compiled code failed ({crash}): steps run in torch" in record.getMessage()


def test_settings_that_are_wrong_are_not_taken_for_a_failure_of_the_compiler(tmp_path: Path) -> None:
    def load(config: CoreConfig, failure: str) -> str:
        raise ValueError(failure)

    with pytest.raises(ValueError, match=r"^$"):
        load_with_compiled_code(CoreConfig.of(tmp_path, compiled_steps=False), load)


def test_a_reason_is_one_short_line_and_given_once() -> None:
    with pytest.raises(CompileError) as raised, reported_as_compile_error("outer"), reported_as_compile_error("inner"):
        raise TypeError("\n\n  " + "x" * 500)
    assert str(raised.value) == f"inner: TypeError: {'x' * 500}"[:200]
