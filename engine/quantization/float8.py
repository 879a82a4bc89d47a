"""fp8 (e4m3) weights and activations, for GPUs that multiply them."""

from __future__ import annotations

import torch

FLOAT8_MAX = 448.0
"""Largest number of float8_e4m3fn."""
_TINY = 1e-12
_MIN_CAPABILITY = (8, 9)
_MULTIPLE = 16


class QuantizationError(ValueError):
    """The quantization asked for does not go with the device or the checkpoint; the message says why."""


def check_float8(device: torch.device) -> None:
    """Raise QuantizationError unless the device multiplies fp8."""
    if device.type != "cuda":
        raise QuantizationError("quantization: fp8 needs a GPU that multiplies it (compute capability 8.9 or later)")
    capability = torch.cuda.get_device_capability(device)
    if torch.version.hip is None and capability < _MIN_CAPABILITY:
        raise QuantizationError(
            f"quantization: fp8 needs compute capability 8.9 or later, this GPU has {capability[0]}.{capability[1]}"
        )


def quantize_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float8_e4m3fn [N, K] and float32 scales [N, 1] of rows [N, K]: each row's largest magnitude becomes 448."""
    rows = rows.float()
    scales = rows.abs().amax(1, keepdim=True).div_(FLOAT8_MAX).clamp_(min=_TINY)
    # Rounding may carry past the largest number, which would turn into NaN.
    codes = rows.div(scales).clamp_(-FLOAT8_MAX, FLOAT8_MAX).to(torch.float8_e4m3fn)
    return codes, scales


class Float8Linear:
    """A projection whose weight and activations are e4m3 with one scale for each output and each row.

    Not measured yet on a GPU. Shapes that are no multiples of 16 are padded with zeros.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._num_out = weight.shape[0]
        self._missing_in = -weight.shape[1] % _MULTIPLE
        padding = (0, self._missing_in, 0, -weight.shape[0] % _MULTIPLE)
        codes, scales = quantize_rows(torch.nn.functional.pad(weight, padding))
        self._codes = codes.t()
        self._scales = scales.t().contiguous()
        self._bias = bias

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """inputs @ weight.T (+ bias)."""
        if self._missing_in:
            inputs = torch.nn.functional.pad(inputs, (0, self._missing_in))
        codes, scales = quantize_rows(inputs)
        # Products with a scale for each row come in bfloat16 only.
        product = torch._scaled_mm(codes, self._codes, scales, self._scales, out_dtype=torch.bfloat16)
        values = product[:, : self._num_out].to(inputs.dtype)
        return values if self._bias is None else values + self._bias

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """out = inputs @ weight.T (+ bias)."""
        out.copy_(self.apply(inputs))

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """total += inputs @ weight.T (+ bias)."""
        total.add_(self.apply(inputs))
