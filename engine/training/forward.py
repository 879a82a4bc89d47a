"""Training forward pass of Qwen3 on a CPU: bfloat16 products, fused norms, attention in query blocks.

It computes the same as transformers, about three times as fast for the short sequences of the training.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

QUERY_BLOCK = 256
LOW = torch.bfloat16


class _RmsNorm(torch.autograd.Function):
    """Root mean square norm with a hand-written backward: a third of the passes over memory."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(torch.linalg.vecdot(wide, wide).unsqueeze(-1) / x.shape[-1] + eps)
        ctx.save_for_backward(x, weight, scale)
        return ((wide * scale) * weight).to(LOW)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        normed = x.float() * scale
        grad = grad.float()
        weight_grad = (grad * normed).flatten(0, -2).sum(0)
        scaled = grad * weight
        inner = torch.linalg.vecdot(scaled, normed).unsqueeze(-1) / x.shape[-1]
        return ((scaled - normed * inner) * scale).to(x.dtype), weight_grad, None


class _SwiGlu(torch.autograd.Function):
    """SwiGLU, silu(gate) * up; the library's backward of silu is slow in bfloat16."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        sigmoid = torch.sigmoid(gate)
        active = gate * sigmoid
        ctx.save_for_backward(sigmoid, active, up)
        return active * up

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sigmoid, active, up = ctx.saved_tensors
        slope = torch.addcmul(active, sigmoid, 1 - active)
        return slope.mul_(up).mul_(grad), grad * active


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the normalized and weighted input in bfloat16."""
    return cast(torch.Tensor, _RmsNorm.apply(x, weight, eps))  # type: ignore[no-untyped-call]


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up."""
    return cast(torch.Tensor, _SwiGlu.apply(gate, up))  # type: ignore[no-untyped-call]


def hidden_states(model: "Qwen3ForCausalLM", ids: torch.Tensor) -> torch.Tensor:
    """Return the final hidden states of right-padded sequences in bfloat16."""
    config = model.config
    body = model.model
    x = functional.embedding(ids, body.embed_tokens.weight)
    rope = _Rope.build(ids.shape[1], config.head_dim, config.num_attention_heads)
    for layer in body.layers:
        normed = rms_norm(x, layer.input_layernorm.weight, config.rms_norm_eps)
        x = x + _attention(layer.self_attn, normed, rope, config.rms_norm_eps)
        normed = rms_norm(x, layer.post_attention_layernorm.weight, config.rms_norm_eps)
        gate, up = _linear(normed, layer.mlp.gate_proj), _linear(normed, layer.mlp.up_proj)
        x = x + _linear(swiglu(gate, up), layer.mlp.down_proj)
    return rms_norm(x, body.norm.weight, config.rms_norm_eps)


def _linear(x: torch.Tensor, layer: torch.nn.Linear) -> torch.Tensor:
    return functional.linear(x, layer.weight.to(LOW))


@dataclass(frozen=True, slots=True)
class _Rope:
    """Rotation tables repeated for every head, and the signed permutation that swaps halves."""

    cos: torch.Tensor
    sin: torch.Tensor
    swap: torch.Tensor

    @staticmethod
    def build(length: int, head_dim: int, num_heads: int) -> "_Rope":
        frequencies = 10_000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies).repeat(1, 2 * num_heads)
        half = torch.eye(head_dim // 2)
        zero = torch.zeros_like(half)
        swap = torch.cat((torch.cat((zero, half), dim=1), torch.cat((-half, zero), dim=1)))
        return _Rope(angles.cos().to(LOW), angles.sin().to(LOW), swap.to(LOW))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate [rows, length, heads, head_dim]."""
        rows, length, heads, size = x.shape
        width = heads * size
        flat = x.reshape(rows, length * width)
        swapped = (x.reshape(-1, size) @ self.swap).view(rows, length * width)
        cos, sin = self.cos[:, :width].flatten(), self.sin[:, :width].flatten()
        return torch.addcmul(flat * cos, swapped, sin).view(x.shape)


def _attention(layer: Any, x: torch.Tensor, rope: _Rope, eps: float) -> torch.Tensor:
    rows, length, _ = x.shape
    size = layer.head_dim
    query = rms_norm(_linear(x, layer.q_proj).view(rows, length, -1, size), layer.q_norm.weight, eps)
    key = rms_norm(_linear(x, layer.k_proj).view(rows, length, -1, size), layer.k_norm.weight, eps)
    value = _linear(x, layer.v_proj).view(rows, length, -1, size)
    query = rope(query) * (1 / math.sqrt(size))
    key = rope(key).permute(0, 2, 3, 1).flatten(0, 1)
    num_kv = value.shape[2]
    value = value.transpose(1, 2).flatten(0, 1)
    # [rows * kv heads, query heads per kv head, length, size]: avoids a copy of keys and values for every query head.
    query = query.view(rows, length, num_kv, -1, size).permute(0, 2, 3, 1, 4).flatten(0, 1)
    blocks = []
    for start in range(0, length, QUERY_BLOCK):
        stop = min(length, start + QUERY_BLOCK)
        blocks.append(_block(query[:, :, start:stop], key[..., :stop], value[:, :stop], start))
    mixed = torch.cat(blocks, dim=2) if len(blocks) > 1 else blocks[0]
    mixed = mixed.view(rows, num_kv, -1, length, size).permute(0, 3, 1, 2, 4).reshape(rows, length, -1)
    return _linear(mixed, layer.o_proj)


def _block(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, start: int) -> torch.Tensor:
    heads, group, length, size = query.shape
    scores = torch.bmm(query.reshape(heads, group * length, size), key).view(heads, group, length, -1)
    is_future = torch.arange(key.shape[-1]) > torch.arange(start, start + length)[:, None]
    scores = scores + torch.zeros(is_future.shape, dtype=LOW).masked_fill_(is_future, -torch.inf)
    weights = torch.softmax(scores, dim=-1).view(heads, group * length, -1)
    return torch.bmm(weights, value).view(heads, group, length, size)
