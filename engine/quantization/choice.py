"""Kernel selection for quantized weights: measured once for each shape, then fixed for the process's life."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic

import torch

from engine.quantization.kernels import Kernel, KernelKind, UnpackBuffer, Weight
from engine.quantization.weights import GroupWeight

logger = logging.getLogger(__name__)

FEW_ROWS = 16
"""Largest number of rows with one common kernel, so that results do not depend on batch or draft tokens."""
_FEW_MEASURED = (1, 8)
_MANY_MEASURED = 128
_MAX_REPEATS = 8
_MIN_REPEATS = 2
_LIMIT_S = 0.08
"""Time limit of one shape and number of rows; a busy machine makes fewer repeats, but at least two."""
_WORTHWHILE = 1.25
"""Minimum speed-up for a separate kernel for many rows, which stores the weight a second time."""
_TIE = 1.1
"""Ratio to the least time up to which the kernel listed first is taken, so that noise does not decide."""
_COLD_BYTES = {"cpu": 8 << 20, "cuda": 256 << 20}
"""Bytes to overwrite so that a weight leaves the caches: a core's own, or a GPU's whole second level."""


@dataclass(frozen=True, slots=True)
class KernelChoice(Generic[Weight]):
    """Kernels for one shape: for few rows and for many."""

    few: KernelKind[Weight]
    many: KernelKind[Weight]


def working_kinds(
    usable: dict[str, KernelKind[Weight]], weight: Weight, scratch: UnpackBuffer
) -> dict[str, KernelKind[Weight]]:
    """Return the kernels that can multiply one row by the weight on this machine.

    Raises:
        Exception: No kernel works; the error is the last kernel's.
    """
    inputs = torch.randn(1, weight.shape[1], device=weight.codes.device, dtype=torch.bfloat16)
    found: dict[str, KernelKind[Weight]] = {}
    failure: Exception | None = None
    for name, kind in usable.items():
        try:
            kind.build(weight, scratch).multiply(inputs)
        # Libraries and compilers raise many kinds of errors; another kernel may still work.
        except Exception as error:
            logger.warning("kernel %s does not run here: %s: %s", name, type(error).__name__, error)
            failure = error
        else:
            found[name] = kind
    if not found and failure is not None:
        raise failure
    return found


@dataclass(slots=True)
class KernelTable:
    """Kernel choices by arithmetic and shape.

    `preferred` lists kernels that are taken without measuring, for repeatable tests.
    """

    clock: Callable[[], float]
    preferred: tuple[str, ...] = ()
    scratch: UnpackBuffer = field(default_factory=UnpackBuffer)
    _choices: dict[tuple[tuple[str, ...], tuple[int, int], int], tuple[str, str]] = field(default_factory=dict)

    def choose(self, kinds: Sequence[KernelKind[Weight]], weight: Weight) -> KernelChoice[Weight]:
        """Return the kernels for a weight, measured for its shape now or before."""
        usable = {kind.name: kind for kind in kinds if kind.can_run(weight)}
        group_size = weight.group_size if isinstance(weight, GroupWeight) else 0
        key = (tuple(usable), weight.shape, group_size)
        names = self._choices.get(key)
        if names is None:
            # On a CPU `can_run` is reliable; on a GPU a kernel also depends on driver, torch and compiler.
            working = working_kinds(usable, weight, self.scratch) if weight.codes.is_cuda else usable
            names = self._choices[key] = self._decide(working, weight)
        return KernelChoice(usable[names[0]], usable[names[1]])

    def _decide(self, usable: dict[str, KernelKind[Weight]], weight: Weight) -> tuple[str, str]:
        for name in self.preferred:
            if name in usable:
                return name, name
        if len(usable) == 1:
            return next(iter(usable)), next(iter(usable))
        kernels = {name: kind.build(weight, self.scratch) for name, kind in usable.items()}
        few_s: dict[str, float] = dict.fromkeys(kernels, 0.0)
        # On a busy machine several threads wait for each other, which would distort the comparison of kernels.
        with _one_thread():
            for num_rows in _FEW_MEASURED:
                for name, seconds in self._measure(kernels, weight, num_rows).items():
                    few_s[name] += seconds
            many_s = self._measure(kernels, weight, _MANY_MEASURED)
        few = next(name for name in few_s if few_s[name] <= _TIE * min(few_s.values()))
        many = min(many_s, key=lambda name: many_s[name])
        if many_s[few] < many_s[many] * _WORTHWHILE:
            many = few
        logger.debug("kernels for %s: %s (%s), many rows: %s (%s)", weight.shape, few, few_s, many, many_s)
        return few, many

    def _measure(self, kernels: dict[str, Kernel], weight: Weight, num_rows: int) -> dict[str, float]:
        """Return each kernel's least seconds over runs in turn, with the weight out of the processor's caches."""
        codes = weight.codes
        # The usual dtype of activations on the device.
        dtype = torch.bfloat16 if codes.is_cuda else torch.float32
        inputs = torch.randn(num_rows, codes.shape[1], device=codes.device, dtype=dtype)
        others = torch.zeros(_COLD_BYTES[codes.device.type], dtype=torch.uint8, device=codes.device)
        best: dict[str, float] = {}
        deadline_at = self.clock() + _LIMIT_S
        for repeat in range(_MAX_REPEATS + 1):
            if repeat > _MIN_REPEATS and self.clock() > deadline_at:
                break
            for name, kernel in kernels.items():
                if num_rows < _MANY_MEASURED:
                    others.add_(1)
                self._wait(codes.device)
                started_at = self.clock()
                kernel.multiply(inputs)
                self._wait(codes.device)
                seconds = self.clock() - started_at
                if repeat:  # the first run only initializes the kernel
                    best[name] = min(seconds, best.get(name, seconds))
        return best

    @staticmethod
    def _wait(device: torch.device) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


@contextmanager
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
