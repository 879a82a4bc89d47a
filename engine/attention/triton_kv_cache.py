"""KV pool of the Triton backend: the model's dtype, or int8 or fp8 with a scale for each position and head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from engine.kernels.paged_attention import store_quantized


def max_code(dtype: torch.dtype) -> float:
    """Return the largest magnitude that a quantized KV dtype represents.

    Raises:
        ValueError: The dtype is neither int8 nor float8_e4m3fn.
    """
    if dtype == torch.int8:
        return 127.0
    if dtype == torch.float8_e4m3fn:
        return 448.0
    raise ValueError(f"kv dtype: expected int8 or float8_e4m3fn, got {dtype}")


@dataclass(frozen=True, slots=True)
class TritonKVCache:
    """Keys and values of one layer, [slots, kv_heads, head_dim], with scales [slots, kv_heads] if quantized."""

    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim]; a quantized pool quantizes each head of each token."""
        if self.key_scales is None or self.value_scales is None:
            self.keys.index_copy_(0, slot_mapping, keys.to(self.keys.dtype))
            self.values.index_copy_(0, slot_mapping, values.to(self.values.dtype))
            return
        _quantize_into(keys, self.keys, self.key_scales, slot_mapping)
        _quantize_into(values, self.values, self.value_scales, slot_mapping)


def _quantize_into(source: torch.Tensor, target: torch.Tensor, scales: torch.Tensor, slots: torch.Tensor) -> None:
    num_tokens, num_kv_heads, head_dim = source.shape
    source = source.contiguous()
    store_quantized[(num_tokens, num_kv_heads)](
        source,
        target,
        scales,
        slots,
        source.stride(0),
        target.stride(0),
        MAX_CODE=max_code(target.dtype),
        IS_INTEGER=not target.dtype.is_floating_point,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        HEAD_DIM_PADDED=max(16, triton.next_power_of_2(head_dim)),
    )
