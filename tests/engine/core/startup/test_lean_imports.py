"""What a core leaves out is not missed, and is there for whoever does use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.core.startup import lean_imports
from engine.core.startup.lean_imports import leave_out_unused_modules

_PROGRAM = """
import sys
from pathlib import Path
from engine.core.startup.lean_imports import leave_out_unused_modules

def anonymous_kb():
    fields = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines())
    return sum(int(field[1]) for field in fields if field[0] == "Anonymous:")

{before}
import torch
import numba
print(anonymous_kb(), "torch._prims" in sys.modules, "scipy" in sys.modules)
"""
_LEAN = "leave_out_unused_modules(); leave_out_unused_modules()"
_USES = """
numbers = torch.arange(6.0).view(2, 3)
print(float((numbers @ numbers.t()).softmax(1)[1, 1]))
print(torch._meta_registrations.__name__, hasattr(torch._meta_registrations, "__warningregistry__"))
print("torch._prims" in sys.modules)
print(callable(torch._meta_registrations.register_meta), "torch._prims" in sys.modules)
print(hasattr(torch._meta_registrations, "no_such_name"))
print(torch.optim.SGD.__name__, torch.distributions.Normal(0.0, 1.0).mean.item(), torch.export.Dim.__name__)
print("torch._native.ops" in sys.modules)
print(tuple(torch.nn.functional.interpolate(torch.empty(1, 1, 4, 4, device="meta"), scale_factor=2).shape))
"""


def _output_of(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").is_file(), reason="needs Linux")
def test_a_lean_process_takes_less_memory_and_computes_the_same() -> None:
    whole = _output_of(_PROGRAM.format(before=""))[0].split()
    lean, *used = _output_of(_PROGRAM.format(before=_LEAN) + _USES)

    assert whole[1] == "True"
    assert lean.split()[1:] == ["False", "False"]
    assert int(whole[0]) - int(lean.split()[0]) > 18 * 1024
    assert used == [
        "1.0",
        "torch._meta_registrations False",
        "False",
        "True True",
        "False",
        "SGD 0.0 Dim",
        "False",
        "(1, 1, 8, 8)",
    ]


def test_nothing_is_left_out_on_a_machine_with_a_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = list(sys.meta_path)
    monkeypatch.setattr(lean_imports, "_CARDS", (str(tmp_path),))
    leave_out_unused_modules()
    assert sys.meta_path == before
    monkeypatch.setattr(lean_imports, "_CARDS", ())
    leave_out_unused_modules()
    assert sys.meta_path[1:] == before
