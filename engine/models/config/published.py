"""Quantization settings of checkpoints that come quantized (AWQ, GPTQ, GGUF, compressed-tensors, fp8, MXFP4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from engine.models.config.config_reader import ConfigReader

Method = Literal["awq", "gptq", "gguf", "compressed-tensors", "fp8", "mxfp4"]
_METHODS = ", ".join(get_args(Method))
_WORD_BITS = 32
_BLOCK = (128, 128)
_MXFP4_GROUP = 32
_GGUF_GROUP = 32
_GPTQ_LEAVES_OUT = "-:"
_STATUSES = ("compressed", "frozen")
"""Statuses of compressed-tensors whose weights are stored as codes; the first exporters wrote the second one."""
_FORMATS = {
    "pack-quantized": ("int", (4, 8), ("channel", "group")),
    "int-quantized": ("int", (8,), ("tensor", "channel")),
    "naive-quantized": ("int", (8,), ("tensor", "channel")),
    "float-quantized": ("float", (8,), ("tensor", "channel", "block")),
    "mxfp4-pack-quantized": ("float", (4,), ("group",)),
}
"""Formats of compressed-tensors, each with the type, bits and strategies of its weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQuantization:
    """Format of a checkpoint's packed weights; with GGUF each tensor has its own, of these bits or more."""

    method: Method
    bits: int
    group_size: int | None
    """Number of inputs that share a scale; None: one group over all inputs."""
    zero_offset: int
    """Number added to the stored zero points; GPTQ's first format stores them one too low."""
    block: tuple[int, int] | None = None
    """Outputs and inputs of a weight's part that shares a scale; None: scales are not by blocks."""
    rounds_inputs: bool = False
    """True if the activations are rounded to int8 as well."""

    @property
    def codes_per_word(self) -> int:
        """Number of codes in an int32."""
        return _WORD_BITS // self.bits


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
        bits = _read_bits(settings, (4, 8))
        return PublishedQuantization(method="gguf", bits=bits, group_size=_GGUF_GROUP, zero_offset=0)
    if method == "compressed-tensors":
        return _read_compressed(settings)
    if method == "fp8":
        return _read_float8(settings)
    if method == "fbgemm_fp8":
        return PublishedQuantization(method="fp8", bits=8, group_size=None, zero_offset=0)
    if method == "mxfp4":
        return PublishedQuantization(method="mxfp4", bits=4, group_size=_MXFP4_GROUP, zero_offset=0)
    problem = f"{method!r} is not supported; expected {_METHODS}, fbgemm_fp8 or the original weights"
    raise settings.error("quant_method", problem)


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
    overrides = settings.child("dynamic")
    # Patterns with this mark name modules that stay unquantized, which their tensors show anyway.
    patterns = () if overrides is None else overrides.keys()
    if not all(pattern.startswith(_GPTQ_LEAVES_OUT) for pattern in patterns):
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


def _read_float8(settings: ConfigReader) -> PublishedQuantization:
    sizes = settings.counts("weight_block_size") or _BLOCK
    block = _read_block(settings, "weight_block_size", sizes)
    return PublishedQuantization(method="fp8", bits=8, group_size=None, zero_offset=0, block=block)


def _read_compressed(settings: ConfigReader) -> PublishedQuantization:
    status = settings.string("quantization_status", default="compressed")
    if status not in _STATUSES:
        raise settings.error("quantization_status", f"{status!r} is not supported; expected {' or '.join(_STATUSES)}")
    for key in ("sparsity_config", "transform_config"):
        child = settings.child(key)
        if child is not None and not child.is_empty() and child.string("format", default="") != "dense":
            raise settings.error(key, "is not supported")
    groups = settings.child("config_groups")
    names = () if groups is None else groups.keys()
    if groups is None or not names:
        raise settings.error("config_groups", "expected an object of at least one group")
    default_format = settings.string("format", default="pack-quantized")
    found = [_read_group(groups, name, default_format) for name in names]
    first = found[0]
    if any((one.bits, one.group_size, one.block) != (first.bits, first.group_size, first.block) for one in found):
        raise settings.error("config_groups", "groups with different bits or spans of scales are not supported")
    # Activations may stay as they are, which is only more exact.
    return replace(first, rounds_inputs=all(one.rounds_inputs for one in found))


def _read_group(groups: ConfigReader, name: str, default_format: str) -> PublishedQuantization:
    group = groups.child(name)
    weights = None if group is None else group.child("weights")
    if group is None or weights is None:
        raise groups.error(name, "has no settings of weights")
    form = group.string("format", default=default_format)
    if form not in _FORMATS:
        raise group.error("format", f"{form!r} is not supported; expected {', '.join(_FORMATS)}")
    if group.has("output_activations"):
        raise group.error("output_activations", "quantized outputs are not supported")
    kind, bits, strategies = _FORMATS[form]
    if weights.string("type", default="int") != kind:
        raise weights.error("type", f"expected {kind!r} in format {form}")
    if weights.positive_integer("num_bits") not in bits:
        raise weights.error("num_bits", f"expected {' or '.join(map(str, bits))} in format {form}")
    strategy = weights.string("strategy", default="tensor")
    if strategy not in strategies:
        raise weights.error("strategy", f"{strategy!r} is not supported; expected {', '.join(strategies)} in {form}")
    if form != "pack-quantized" and not weights.boolean("symmetric", default=True):
        raise weights.error("symmetric", f"expected true in format {form}")
    inputs = group.child("input_activations")
    return PublishedQuantization(
        method="compressed-tensors",
        bits=weights.positive_integer("num_bits"),
        group_size=weights.positive_integer("group_size") if strategy == "group" else None,
        zero_offset=0,
        block=_read_block(weights, "block_structure", weights.counts("block_structure"))
        if strategy == "block"
        else None,
        # Fixed scales of activations are not used: activations then stay as they are.
        rounds_inputs=kind == "int" and inputs is not None and inputs.boolean("dynamic", default=False),
    )


def _read_block(settings: ConfigReader, key: str, sizes: tuple[int, ...]) -> tuple[int, int]:
    if len(sizes) != len(_BLOCK) or 0 in sizes:
        raise settings.error(key, f"expected two sizes above 0, got {list(sizes)}")
    return sizes[0], sizes[1]
