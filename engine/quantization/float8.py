"""fp8 (e4m3) weights and activations on GPUs with fp8 products, and a bfloat16 fallback for others."""

from __future__ import annotations

import torch
from torch.nn import functional

from engine.config import EngineConfigError
from engine.quantization.kernels import KernelKind, UnpackBuffer, UnpackedCodes
from engine.quantization.triton_kernels import TRITON_FLOAT8
from engine.quantization.weights import ChannelWeight

FLOAT8_MAX = 448.0
"""Largest number of float8_e4m3fn."""
_TINY = 1e-12
_MIN_CAPABILITY = (8, 9)
_MULTIPLE = 16


class QuantizationError(EngineConfigError):
    """A quantization that the device or the checkpoint does not support; the message gives the reason."""


def check_float8(device: torch.device) -> None:
    """Raise QuantizationError on a CPU, where fp8 weights cost time without a benefit."""
    if device.type != "cuda":
        raise QuantizationError("quantization: fp8 needs a GPU that multiplies it (compute capability 8.9 or later)")


def multiplies_float8(device: torch.device) -> bool:
    """Return whether the device supports products of e4m3 numbers."""
    if device.type != "cuda":
        return False
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= _MIN_CAPABILITY


def quantize_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize rows [N, K] to float8_e4m3fn [N, K] with float32 scales [N, 1] that map each maximum to 448."""
    rows = rows.float()
    scales = rows.abs().amax(1, keepdim=True).div_(FLOAT8_MAX).clamp_(min=_TINY)
    # Rounding may exceed the largest fp8 number, which would become NaN.
    codes = rows.div(scales).clamp_(-FLOAT8_MAX, FLOAT8_MAX).to(torch.float8_e4m3fn)
    return codes, scales


def quantize_outputs(weight: torch.Tensor) -> ChannelWeight:
    """Quantize a weight [out, in] to e4m3 codes with one scale for each output."""
    codes, scales = quantize_rows(weight)
    return ChannelWeight(codes, scales.flatten())


class _Scaled:
    """Weight in the form of torch's e4m3 products: column-major, padded with zeros to multiples of 16."""

    def __init__(self, weight: ChannelWeight, scratch: UnpackBuffer) -> None:
        self._num_out = weight.shape[0]
        self._missing_in = -weight.shape[1] % _MULTIPLE
        missing_out = -weight.shape[0] % _MULTIPLE
        # Padding does not support e4m3, so it runs on the same bytes as uint8.
        padded = functional.pad(weight.codes.view(torch.uint8), (0, self._missing_in, 0, missing_out))
        self._codes = padded.view(torch.float8_e4m3fn).t()
        self._scales = functional.pad(weight.scales, (0, missing_out), value=1.0).unsqueeze(0)

    def _quantize(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the codes and scales of the rows."""
        if self._missing_in:
            inputs = functional.pad(inputs, (0, self._missing_in))
        if not inputs.is_cuda:
            return quantize_rows(inputs)
        # Only GPU builds install Triton.
        from engine.kernels.weight_only import quantize_rows_fused

        return quantize_rows_fused(inputs if inputs.stride(1) == 1 else inputs.contiguous())


class ScaledRows(_Scaled):
    """torch's product of e4m3 matrices with one scale for each row and each output."""

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: bfloat16 [T, out]."""
        codes, scales = self._quantize(inputs)
        # torch supports products with a scale for each row in bfloat16 only.
        product = torch._scaled_mm(codes, self._codes, scales, self._scales, out_dtype=torch.bfloat16)
        return product[:, : self._num_out], None


class ScaledTensors(_Scaled):
    """torch's product of e4m3 matrices with one scale for each matrix; row and output scales are applied after it."""

    def __init__(self, weight: ChannelWeight, scratch: UnpackBuffer) -> None:
        super().__init__(weight, scratch)
        self._one = torch.ones((), device=weight.codes.device)

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Multiply inputs [T, in]: float32 [T, out], and the rows' scales."""
        codes, scales = self._quantize(inputs)
        product = torch._scaled_mm(codes, self._codes, self._one, self._one, out_dtype=torch.float32)
        return product.mul_(self._scales)[:, : self._num_out], scales


def _can_scale(weight: ChannelWeight) -> bool:
    return multiplies_float8(weight.codes.device)


def _always(weight: ChannelWeight) -> bool:
    return True


FLOAT8: tuple[KernelKind[ChannelWeight], ...] = (
    KernelKind("scaled_rows", _can_scale, ScaledRows),
    KernelKind("scaled_tensors", _can_scale, ScaledTensors),
    *TRITON_FLOAT8,
    KernelKind("written_out", _always, UnpackedCodes),
)
"""Kernels for fp8 weights. The first two also round activations to e4m3; the others keep them in bfloat16."""
