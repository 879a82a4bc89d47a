"""Execution environment of the core: device, dtype, attention backend and memory probe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.attention.base import AttentionBackend, AttentionSpec, KVCache
from engine.attention.torch_attention import TorchAttention
from engine.config import CoreConfig, EngineConfigError
from engine.models.families.registry import read_model_config
from engine.runner.cuda_graphs import CudaGraphApi, GraphApi
from engine.runner.host_limits import HostLimits
from engine.runner.memory_probe import CudaMemory, HostMemory, MemoryProbe
from engine.sampling.device_choice import TokenChooser

_KV_DTYPES = {"auto": None, "float32": None, "bfloat16": None, "int8": torch.int8, "fp8": torch.float8_e4m3fn}
_CORES_TO_SPARE_ONE = 4
_FLOAT8_CAPABILITY = (8, 9)


@dataclass(frozen=True, slots=True)
class Machine:
    """Device and dtype of the model, with the services that depend on them."""

    device: torch.device
    dtype: torch.dtype
    backend: AttentionBackend
    memory: MemoryProbe
    kv_dtype: torch.dtype | None = None
    """Dtype of a quantized KV pool; None if the pool holds `dtype`."""
    graphs: GraphApi | None = None
    """Interface to graph capture; None if steps are not captured."""
    chooser: TokenChooser | None = None
    """Token chooser on the device; None if the sampler's own operations choose."""

    @property
    def kv_element_bytes(self) -> int:
        """Bytes of one number in the KV pool."""
        head_major = self.backend.head_major if isinstance(self.backend, TorchAttention) else None
        return (self.kv_dtype or head_major or self.dtype).itemsize

    def backend_of_its_own(self) -> AttentionBackend:
        """Return a backend for a second model whose steps alternate with the first one's.

        It is a separate one if the backend holds state of a step.
        """
        if isinstance(self.backend, TorchAttention):
            found = TorchAttention(self.device, has_int8_kv=self.kv_dtype is not None)
            found.head_major = self.backend.head_major
            return found
        return self.backend

    def allocate_pool(
        self, specs: Sequence[AttentionSpec], num_blocks: int, block_size: int, *, num_window_blocks: int = 0
    ) -> list[KVCache]:
        """Return an empty KV pool: one cache for each layer.

        Args:
            specs: Attention of each layer.
            num_blocks: Blocks of each cache.
            block_size: Tokens of a block.
            num_window_blocks: Blocks of layers with a sliding window; 0: as many as of the others.
        """
        if not isinstance(self.backend, TorchAttention):
            return [self.backend.allocate(num_blocks, block_size, spec, self.dtype) for spec in specs]
        return list[KVCache](
            self.backend.allocate_layers(num_blocks, block_size, specs, self.dtype, num_window_blocks=num_window_blocks)
        )


def find_machine(config: CoreConfig) -> Machine:
    """Choose device, dtype, attention backend and memory probe; set up torch for them. Raises EngineConfigError."""
    has_cuda = torch.cuda.is_available()
    kv_dtype = _KV_DTYPES[config.kv.kv_dtype]
    if config.compute.device == "cuda" and not has_cuda:
        raise EngineConfigError("device: cuda was requested, but torch finds no usable GPU; use cpu or auto")
    if has_cuda and config.compute.device != "cpu":
        if config.kv.kv_dtype in ("float32", "bfloat16"):
            raise EngineConfigError(
                f"kv_dtype: {config.kv.kv_dtype} is for a CPU; on a GPU use auto (the model's own numbers), int8 or fp8"
            )
        # The default changes with Triton 3.10; the same numbers by any version.
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
        # Triton is installed with GPU builds only.
        from engine.attention.triton_paged import TritonPagedAttention
        from engine.kernels.choose_tokens import TritonChooser

        device = torch.device("cuda", torch.cuda.current_device())
        num_processors = torch.cuda.get_device_properties(device).multi_processor_count
        triton = TritonPagedAttention(device=device, num_processors=num_processors, kv_dtype=kv_dtype)
        _check_kv_dtype(kv_dtype, device)
        return Machine(
            device,
            _dtype(config, device),
            triton,
            CudaMemory(device),
            kv_dtype,
            CudaGraphApi(device) if config.compute.cuda_graphs else None,
            TritonChooser(),
        )
    if config.kv.kv_dtype == "fp8":
        raise EngineConfigError("kv_dtype: fp8 needs a GPU; on a CPU use int8")
    device, limits = torch.device("cpu"), HostLimits()
    # Threads that torch starts later inherit this.
    torch.set_flush_denormal(True)
    num_threads = config.compute.num_threads or default_threads(limits.num_cores())
    torch.set_num_threads(max(1, num_threads // config.compute.tensor_parallel))
    backend = TorchAttention(device, has_int8_kv=kv_dtype is not None)
    if config.kv.kv_dtype == "bfloat16":
        backend.head_major = torch.bfloat16
    return Machine(
        device, _dtype(config, device), backend, HostMemory(limits, config.compute.tensor_parallel), kv_dtype
    )


def _check_kv_dtype(kv_dtype: torch.dtype | None, device: torch.device) -> None:
    """Raise EngineConfigError for an fp8 pool on a card whose kernels do not support fp8."""
    capability = torch.cuda.get_device_capability(device)
    if kv_dtype == torch.float8_e4m3fn and torch.version.hip is None and capability < _FLOAT8_CAPABILITY:
        raise EngineConfigError(
            f"kv_dtype: fp8 needs compute capability 8.9 or later, this GPU has {capability[0]}.{capability[1]}; "
            "use int8"
        )


def default_threads(num_cores: int) -> int:
    """Return the number of torch's threads; with four cores or more, one is left for the front."""
    return num_cores - 1 if num_cores >= _CORES_TO_SPARE_ONE else num_cores


def _dtype(config: CoreConfig, device: torch.device) -> torch.dtype:
    if config.compute.dtype != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[config.compute.dtype]
    return torch.float32 if device.type == "cpu" else read_model_config(config.model_dir).dtype
