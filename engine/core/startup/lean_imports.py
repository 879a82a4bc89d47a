"""Modules that torch and Numba import for uses that a core does not have: they are left out, or run when they are used.

They hold some forty megabytes, and importing them takes a third of the time that torch takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

_DEFERRED = frozenset(
    {
        *("torch._meta_registrations", "torch.distributed._meta_registrations", "torch._native"),
        *("torch.ao", "torch.quantization", "torch.nn.intrinsic", "torch.nn.qat"),
        *("torch.nn.quantizable", "torch.nn.quantized", "torch.distributions", "torch.optim"),
        *("torch.export", "torch.masked", "torch.utils.data"),
    }
)
"""Modules of tensors without numbers, kernels in other languages, torch's own quantization, training and export."""
_LEFT_OUT = frozenset({"scipy"})
"""Optional modules, which their importer does without: Numba multiplies matrices with it, and no kernel here does."""
_CARDS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Devices of drivers: of NVIDIA, of WSL, of AMD."""
_LOCK = RLock()


def leave_out_unused_modules() -> None:
    """Leave out what no core on a CPU uses; to be called before torch and Numba are imported.

    On a machine with a card, nothing is left out: some of these modules belong to torch's operations there.
    """
    if any(Path(device).exists() for device in _CARDS):
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _DeferredModule(ModuleType):
    """Module whose code runs when one of its names is first read; the import system's own names are there before."""

    def _run_code(self) -> None:
        """Run the module's code if it did not run yet."""
        with _LOCK:
            code: Callable[[ModuleType], None] | None = self.__dict__.pop("_code", None)
            if code is not None:
                code(self)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            self._run_code()
        if name not in self.__dict__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return self.__dict__[name]


class _DeferringLoader(Loader):
    """Loader that leaves the module's code to another loader, until it is needed."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty module."""
        return _DeferredModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Store what runs the module's code."""
        module.__dict__["_code"] = self._loader.exec_module


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a deferred module; None for others, which the next finder finds.

        Raises:
            ModuleNotFoundError: The module is left out.
        """
        if fullname in _LEFT_OUT:
            raise ModuleNotFoundError(f"{fullname} is left out of a core", name=fullname)
        if fullname not in _DEFERRED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _DeferringLoader(spec.loader)
        return spec
