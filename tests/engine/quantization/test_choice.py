"""Kernels are chosen by the clock, once for each shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch

from engine.quantization.choice import KernelTable, working_kinds
from engine.quantization.kernels import Kernel, KernelKind, UnpackBuffer
from engine.quantization.weights import ChannelWeight, quantize_channels


class SteppedClock:
    """Stands still but for what kernels take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowKernel:
    """Takes a stated time for few rows and another for many, and waits for every thread beside the first."""

    def __init__(self, clock: SteppedClock, few_s: float, many_s: float, wait_s: float) -> None:
        self._clock = clock
        self._few_s = few_s
        self._many_s = many_s
        self._wait_s = wait_s

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        self._clock.now += self._few_s if inputs.shape[0] <= 16 else self._many_s
        self._clock.now += self._wait_s * (torch.get_num_threads() - 1)
        return inputs, None


def kinds(
    clock: SteppedClock, times: Mapping[str, tuple[float, float]], wait_s: float = 0.0
) -> Sequence[KernelKind[ChannelWeight]]:
    def kind(name: str, few_s: float, many_s: float) -> KernelKind[ChannelWeight]:
        def build(weight: ChannelWeight, scratch: UnpackBuffer) -> Kernel:
            return SlowKernel(clock, few_s, many_s, wait_s)

        return KernelKind(name, lambda weight: True, build)

    return [kind(name, few_s, many_s) for name, (few_s, many_s) in times.items()]


WEIGHT = quantize_channels(torch.ones(4, 8))


def choose(times: Mapping[str, tuple[float, float]], preferred: tuple[str, ...] = ()) -> tuple[str, str]:
    clock = SteppedClock()
    choice = KernelTable(clock, preferred).choose(kinds(clock, times), WEIGHT)
    return choice.few.name, choice.many.name


def test_few_and_many_rows_may_have_different_kernels() -> None:
    assert choose({"a": (0.001, 0.009), "b": (0.002, 0.004)}) == ("a", "b")


def test_a_second_layout_is_stored_only_where_it_is_clearly_faster() -> None:
    assert choose({"a": (0.001, 0.0048), "b": (0.002, 0.004)}) == ("a", "a")


def test_a_preferred_kernel_is_taken_without_measuring() -> None:
    assert choose({"a": (0.001, 0.001), "b": (0.9, 0.9)}, preferred=("c", "b")) == ("b", "b")


def test_threads_that_wait_for_each_other_on_a_busy_machine_do_not_count() -> None:
    clock = SteppedClock()
    candidates = kinds(clock, {"a": (0.001, 0.009), "b": (0.002, 0.004)}, wait_s=0.1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        choice = KernelTable(clock).choose(candidates, WEIGHT)
        assert (choice.few.name, choice.many.name) == ("a", "b")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_shape_is_measured_once() -> None:
    clock = SteppedClock()
    table = KernelTable(clock)
    candidates = kinds(clock, {"a": (0.001, 0.001), "b": (0.002, 0.002)})
    table.choose(candidates, WEIGHT)
    measured_until = clock.now

    table.choose(candidates, WEIGHT)
    assert clock.now == measured_until
    table.choose(candidates, quantize_channels(torch.ones(6, 8)))
    assert clock.now > measured_until


class BrokenKernel:
    """Does not run here."""

    def __init__(self, weight: ChannelWeight, scratch: UnpackBuffer) -> None:
        pass

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        raise NotImplementedError("no such kernel in this build")


def test_kernels_that_do_not_run_on_a_card_are_passed_over() -> None:
    broken = KernelKind("broken", lambda weight: True, BrokenKernel)
    (working,) = kinds(SteppedClock(), {"a": (0.1, 0.1)})

    assert list(working_kinds({"broken": broken, "a": working}, WEIGHT, UnpackBuffer())) == ["a"]
    with pytest.raises(NotImplementedError, match="no such kernel"):
        working_kinds({"broken": broken}, WEIGHT, UnpackBuffer())
