"""Quantization settings of checkpoints that come quantized (AWQ, GPTQ, GGUF)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.models.config.config_reader import ConfigReader

Method = Literal["awq", "gptq", "gguf"]
_WORD_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQuantization:
    """Format of a checkpoint's packed weights; with GGUF each tensor has its own."""

    method: Method
    bits: int
    group_size: int | None
    """Number of inputs that share a scale; None: one group over all inputs."""
    zero_offset: int
    """Number added to the stored zero points; GPTQ's first format stores them one too low."""

    @property
    def codes_per_word(self) -> int:
        """Number of codes in an int32."""
        return _WORD_BITS // self.bits


_GGUF = PublishedQuantization(method="gguf", bits=8, group_size=32, zero_offset=0)


def read_published(reader: ConfigReader) -> PublishedQuantization | None:
    """Read the quantization settings of a checkpoint.

    Returns:
        The settings; None for weights that are not quantized.

    Raises:
        ModelConfigError: The method or one of its settings is not supported.
    """
    settings = reader.child("quantization_config")
    if settings is None:
        return None
    method = settings.string("quant_method")
    if method == "awq":
        return _read_awq(settings)
    if method == "gptq":
        return _read_gptq(settings)
    if method == "gguf":
        return _GGUF
    raise settings.error("quant_method", f"{method!r} is not supported; expected awq, gptq, gguf or original weights")


def _read_awq(settings: ConfigReader) -> PublishedQuantization:
    version = settings.string("version", default="gemm").lower()
    if version != "gemm":
        raise settings.error("version", f"{version!r} is not supported; expected 'gemm'")
    bits = _read_bits(settings, (4,))
    if not settings.boolean("zero_point", default=True):
        raise settings.error("zero_point", "expected true")
    return PublishedQuantization(method="awq", bits=bits, group_size=_read_group_size(settings), zero_offset=0)


def _read_gptq(settings: ConfigReader) -> PublishedQuantization:
    bits = _read_bits(settings, (4, 8))
    form = settings.string("checkpoint_format", default="gptq")
    if form not in ("gptq", "gptq_v2"):
        raise settings.error("checkpoint_format", f"{form!r} is not supported; expected 'gptq' or 'gptq_v2'")
    if settings.has("dynamic"):
        raise settings.error("dynamic", "settings that differ between layers are not supported")
    offset = 1 if form == "gptq" else 0
    return PublishedQuantization(method="gptq", bits=bits, group_size=_read_group_size(settings), zero_offset=offset)


def _read_bits(settings: ConfigReader, known: tuple[int, ...]) -> int:
    key = "bits" if settings.has("bits") else "w_bit"
    bits = settings.positive_integer(key)
    if bits not in known:
        raise settings.error(key, f"{bits} is not supported; expected {' or '.join(map(str, known))}")
    return bits


def _read_group_size(settings: ConfigReader) -> int | None:
    key = "group_size" if settings.has("group_size") else "q_group_size"
    size = settings.integer(key, default=128)
    if size == -1:
        return None
    if size < 1:
        raise settings.error(key, f"expected a positive integer or -1, got {size}")
    return size
