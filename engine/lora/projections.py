"""Projections of a decoder layer that adapters may change, and the modules of a checkpoint that each one fuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from engine.models.config.config import ModelConfig
from engine.models.layers import interleave_halves

ProjectionName = Literal["qkv", "output", "gate_up", "down"]


@dataclass(frozen=True, slots=True)
class AdaptedModule:
    """Module of a checkpoint, as a range of a projection's outputs."""

    name: str
    """Name within the layer, such as `self_attn.q_proj`."""
    start: int
    size: int
    output_order: torch.Tensor | None = None
    """int64 [size]: the checkpoint's output that stands at each place; None: the same one."""

    @property
    def end(self) -> int:
        """First output behind the module."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class AdaptedProjection:
    """Projection whose outputs are those of one or more modules side by side."""

    name: ProjectionName
    in_size: int
    modules: tuple[AdaptedModule, ...]

    @property
    def out_size(self) -> int:
        """Number of outputs."""
        return self.modules[-1].end

    def num_weights(self, rank: int) -> int:
        """Return the numbers of an adapter of this rank that changes all modules."""
        return rank * (len(self.modules) * self.in_size + self.out_size)


def adapted_projections(config: ModelConfig, layer: int) -> tuple[AdaptedProjection, ...]:
    """Return the projections of a layer that adapters may change: all but those of experts."""
    hidden_size, head_dim = config.hidden_size, config.head_dim
    attended_size = config.num_heads * head_dim
    output = AdaptedProjection("output", attended_size, (AdaptedModule("self_attn.o_proj", 0, hidden_size),))
    attention = (AdaptedProjection("qkv", hidden_size, _qkv_modules(config)), output)
    experts = config.traits.experts
    if experts is not None and layer in experts.layers:
        return attention
    size = config.intermediate_size
    names = ("gate_up_proj",) if config.traits.has_fused_gate_up else ("gate_proj", "up_proj")
    part = 2 * size // len(names)
    gate_up = tuple(AdaptedModule(f"mlp.{name}", index * part, part) for index, name in enumerate(names))
    down = AdaptedProjection("down", size, (AdaptedModule("mlp.down_proj", 0, hidden_size),))
    return (*attention, AdaptedProjection("gate_up", hidden_size, gate_up), down)


def _qkv_modules(config: ModelConfig) -> tuple[AdaptedModule, ...]:
    num_heads, num_kv_heads = config.num_heads, config.num_kv_heads
    if config.traits.has_fused_qkv:
        parts = [("qkv_proj", num_heads + 2 * num_kv_heads, num_heads + num_kv_heads)]
    else:
        parts = [("q_proj", num_heads, num_heads), ("k_proj", num_kv_heads, num_kv_heads), ("v_proj", num_kv_heads, 0)]
    modules: list[AdaptedModule] = []
    interleaves = not config.traits.has_adjacent_pairs
    start = 0
    for name, count, num_rotated in parts:
        size = count * config.head_dim
        order = _output_order(config, count, num_rotated) if num_rotated and interleaves else None
        modules.append(AdaptedModule(f"self_attn.{name}", start, size, order))
        start += size
    return tuple(modules)


def _output_order(config: ModelConfig, num_heads: int, num_rotated: int) -> torch.Tensor:
    """Return the order of outputs in which the loader stores the weights of heads that rotate."""
    rows = torch.arange(num_heads * config.head_dim).view(num_heads, config.head_dim)
    rows[:num_rotated] = interleave_halves(rows[:num_rotated], 1, config.rope.rotated_size(config.head_dim))
    return rows.flatten()
