"""The virtual clock that tests share with the simulator."""

from loadtests.virtual_loop import NothingLeft, VirtualLoop, run_virtual

__all__ = ["NothingLeft", "VirtualLoop", "run_virtual"]
