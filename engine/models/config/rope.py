"""Rotary position frequencies (RoPE) and the published methods to extend their range."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from engine.models.config.config_reader import ConfigReader


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """Linear scaling: all positions divided by a constant."""

    factor: float

    def apply(self, inverse: torch.Tensor, base: float) -> torch.Tensor:
        """Return the scaled inverse frequencies, float32 [rotated_size / 2]."""
        return inverse / self.factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Llama 3 scaling: low frequencies divided by a constant, high ones unchanged, and a ramp in between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int

    def apply(self, inverse: torch.Tensor, base: float) -> torch.Tensor:
        """Return the scaled inverse frequencies, float32 [rotated_size / 2]."""
        turns = self.original_max_positions * inverse / (2 * math.pi)
        unscaled_share = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return inverse * (unscaled_share + (1 - unscaled_share) / self.factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnScaling:
    """YaRN scaling: low frequencies interpolated, high ones unchanged (arXiv 2309.00071)."""

    factor: float
    beta_fast: float
    beta_slow: float
    original_max_positions: int
    is_truncated: bool

    def apply(self, inverse: torch.Tensor, base: float) -> torch.Tensor:
        """Return the scaled inverse frequencies, float32 [rotated_size / 2]."""
        half = inverse.numel()
        low, high = self._dimension_at(self.beta_fast, base, half), self._dimension_at(self.beta_slow, base, half)
        if self.is_truncated:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * half - 1)
        width = high - low if high != low else 0.001
        interpolated_share = ((torch.arange(half, dtype=torch.float32) - low) / width).clamp(0, 1)
        return inverse * (1 - interpolated_share) + inverse / self.factor * interpolated_share

    def _dimension_at(self, num_rotations: float, base: float, half: int) -> float:
        return half * math.log(self.original_max_positions / (num_rotations * 2 * math.pi)) / math.log(base)


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisorScaling:
    """LongRoPE scaling: each frequency divided by its own number (arXiv 2402.13753)."""

    divisors: tuple[float, ...]

    def apply(self, inverse: torch.Tensor, base: float) -> torch.Tensor:
        """Return the scaled inverse frequencies, float32 [rotated_size / 2]."""
        return inverse / torch.tensor(self.divisors, dtype=torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Settings of the rotation by position."""

    theta: float
    scaling: LinearScaling | Llama3Scaling | YarnScaling | DivisorScaling | None = None
    attention_factor: float = 1.0
    """Factor of the rotated queries and keys."""
    rotated_share: float = 1.0
    """Share of each head that rotates, from its first number on; the rest is unchanged."""
    original_max_positions: int | None = None
    """Number of positions up to which `scaling` applies; None: it applies to any number."""
    long_scaling: DivisorScaling | None = None
    """Scaling of a model for more than `original_max_positions` positions."""

    def reaching(self, num_positions: int) -> RopeConfig:
        """Return the settings for sequences of up to `num_positions` positions.

        All sequences use the same settings. transformers instead switches in the middle of a sequence, whose earlier
        keys are then rotated by other frequencies.
        """
        if self.original_max_positions is None or num_positions <= self.original_max_positions:
            return self
        return replace(self, scaling=self.long_scaling)

    def rotated_size(self, head_dim: int) -> int:
        """Return the number of elements of a head that rotate."""
        return int(head_dim * self.rotated_share)

    def inverse_frequencies(self, head_dim: int) -> torch.Tensor:
        """Return the radians per position of each rotating pair, float32 [rotated_size / 2]."""
        size = self.rotated_size(head_dim)
        exponents = torch.arange(0, size, 2, dtype=torch.int64).to(torch.float32) / size
        inverse = 1.0 / (self.theta**exponents)
        return inverse if self.scaling is None else self.scaling.apply(inverse, self.theta)

    def rotations(self, head_dim: int, num_positions: int, start: int = 0) -> torch.Tensor:
        """Return the rotations of positions from `start` on, complex64 [num_positions, head_dim / 2].

        They are times the attention factor. Pairs that do not rotate have the value 1.
        """
        angles = torch.outer(
            torch.arange(start, start + num_positions, dtype=torch.float32), self.inverse_frequencies(head_dim)
        )
        turning = torch.complex(angles.cos() * self.attention_factor, angles.sin() * self.attention_factor)
        return functional.pad(turning, (0, head_dim // 2 - turning.shape[1]), value=1.0)


def read_rope_config(
    reader: ConfigReader,
    max_positions: int,
    default_theta: float,
    *,
    can_be_partial: bool = False,
    default_share: float = 1.0,
) -> RopeConfig:
    """Read rope settings in the layout of `rope_theta` and `rope_scaling`, or of `rope_parameters`.

    Args:
        reader: Settings of the model.
        max_positions: Number of positions that the model reaches.
        default_theta: Default of `rope_theta`.
        can_be_partial: True if a part of each head may stay unrotated.
        default_share: Default of the rotated part.

    Raises:
        ModelConfigError: A setting is wrong or not supported.
    """
    section = reader.child("rope_scaling") or reader.child("rope_parameters")
    theta = reader.positive_number("rope_theta", default=default_theta)
    share = default_share
    for holder in (reader, section):
        if holder is not None and holder.has("partial_rotary_factor"):
            share = _read_rotated_share(holder, can_be_partial=can_be_partial)
    original = max_positions
    if reader.has("original_max_position_embeddings"):
        original = reader.positive_integer("original_max_position_embeddings")
    rope = RopeConfig(theta=theta) if section is None else _read_section(section, theta, max_positions, original)
    return replace(rope, rotated_share=share)


def read_global_and_local_rope(
    reader: ConfigReader, max_positions: int, default_theta: float, default_local_theta: float | None
) -> tuple[RopeConfig, RopeConfig]:
    """Read the rope settings of layers with full attention and of layers with a window, in either published layout.

    Args:
        reader: Settings of the model.
        max_positions: Number of positions that the model reaches.
        default_theta: Default of `rope_theta`.
        default_local_theta: Default of `rope_local_base_freq`; None: as `rope_theta`.

    Raises:
        ModelConfigError: A setting is wrong or not supported.
    """
    theta = reader.positive_number("rope_theta", default=default_theta)
    local_theta = reader.positive_number("rope_local_base_freq", default=default_local_theta or theta)
    section = reader.child("rope_scaling") or reader.child("rope_parameters")
    local_section = None
    if section is not None and (section.has("full_attention") or section.has("sliding_attention")):
        local_section = section.child("sliding_attention")
        section = section.child("full_attention")
    for holder in (reader, section, local_section):
        if holder is not None and holder.has("partial_rotary_factor"):
            _read_rotated_share(holder, can_be_partial=False)
    rope = RopeConfig(theta=theta) if section is None else _read_section(section, theta, max_positions)
    if local_section is None:
        return rope, RopeConfig(theta=local_theta)
    return rope, _read_section(local_section, local_theta, max_positions)


def _read_rotated_share(reader: ConfigReader, *, can_be_partial: bool) -> float:
    share = reader.positive_number("partial_rotary_factor")
    if share != 1.0 and not can_be_partial:
        raise reader.error("partial_rotary_factor", "rotating a part of each head is not supported; expected 1.0")
    if share > 1.0:
        raise reader.error("partial_rotary_factor", f"expected at most 1.0, got {share}")
    return share


def _read_section(
    section: ConfigReader, theta: float, max_positions: int, original_max_positions: int | None = None
) -> RopeConfig:
    for kind in ("full_attention", "sliding_attention"):
        if section.has(kind):
            raise section.error(kind, "rope settings that differ between layers are not supported")
    theta = section.positive_number("rope_theta", default=theta)
    kind = section.string("rope_type", default=section.string("type", default="default"))
    # The first Phi-3 checkpoints name this method su or yarn.
    if kind in ("longrope", "su") or section.has("short_factor"):
        return _read_longrope(section, theta, max_positions, original_max_positions or max_positions)
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "dynamic":
        # Dynamic scaling starts beyond the model's own length, which no sequence exceeds here.
        section.positive_number("factor")
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, scaling=LinearScaling(factor=section.positive_number("factor")))
    if kind == "llama3":
        return RopeConfig(theta=theta, scaling=_read_llama3(section))
    if kind == "yarn":
        return _read_yarn(section, theta, max_positions)
    known = "default, linear, dynamic, llama3, yarn or longrope"
    raise section.error("rope_type", f"{kind!r} is not supported; expected {known}")


def _read_llama3(section: ConfigReader) -> Llama3Scaling:
    low, high = section.positive_number("low_freq_factor"), section.positive_number("high_freq_factor")
    if low >= high:
        raise section.error("high_freq_factor", f"expected more than low_freq_factor {low}, got {high}")
    return Llama3Scaling(
        factor=section.positive_number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=section.positive_integer("original_max_position_embeddings"),
    )


def _read_longrope(section: ConfigReader, theta: float, max_positions: int, original_max_positions: int) -> RopeConfig:
    original = section.positive_integer("original_max_position_embeddings", default=original_max_positions)
    factor = section.positive_number("factor", default=max_positions / original)
    sharpening = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return RopeConfig(
        theta=theta,
        scaling=DivisorScaling(divisors=section.positive_numbers("short_factor")),
        attention_factor=section.positive_number("attention_factor", default=sharpening),
        original_max_positions=original,
        long_scaling=DivisorScaling(divisors=section.positive_numbers("long_factor")),
    )


def _read_yarn(section: ConfigReader, theta: float, max_positions: int) -> RopeConfig:
    original = section.positive_integer("original_max_position_embeddings", default=max_positions)
    factor = section.positive_number("factor", default=max_positions / original)
    scaling = YarnScaling(
        factor=factor,
        beta_fast=section.positive_number("beta_fast", default=32.0),
        beta_slow=section.positive_number("beta_slow", default=1.0),
        original_max_positions=original,
        is_truncated=section.boolean("truncate", default=True),
    )
    sharpening = _yarn_sharpening(factor)
    if section.has("mscale") and section.has("mscale_all_dim"):
        scales = section.positive_number("mscale"), section.positive_number("mscale_all_dim")
        sharpening = _yarn_sharpening(factor, scales[0]) / _yarn_sharpening(factor, scales[1])
    attention_factor = section.positive_number("attention_factor", default=sharpening)
    return RopeConfig(theta=theta, scaling=scaling, attention_factor=attention_factor)


def _yarn_sharpening(factor: float, scale: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
