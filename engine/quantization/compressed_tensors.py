"""Reader of one projection of a compressed-tensors or fp8 checkpoint.

Outputs are rows and inputs are columns. The tensors present tell the format:

    pack-quantized        weight_packed      int32 [out, in / n]: n codes a word, the first in the lowest bits
                          weight_scale       [out, groups]
                          weight_zero_point  int32 [out / n, groups], or int8 [out, groups]; absent: symmetric codes
                          weight_g_idx       int32 [in]: the group of every input, where groups are not in order
    int-quantized         weight             int8 [out, in]
                          weight_scale       [out, 1] or one number
    float-quantized, fp8  weight             float8_e4m3fn [out, in]
                          weight_scale       [out, 1], one number, or one of each block (fp8: weight_scale_inv)
    mxfp4-pack-quantized  weight_packed      uint8 [out, in / 2]
                          weight_scale       uint8 [out, in / 32]: exponents
"""

from __future__ import annotations

import torch

from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.published import PublishedQuantization
from engine.quantization.packed_words import group_order, split_large_groups, unpack
from engine.quantization.weights import (
    MXFP4_GROUP,
    ChannelWeight,
    GroupWeight,
    Mxfp4Weight,
    PlainWeight,
    PublishedWeight,
)

_UNUSED = ("weight_shape", "input_scale", "input_zero_point", "input_global_scale", "output_scale")
"""Tensors that the weights do not need: activations stay as they are, or have scales of their own."""


def is_compressed(checkpoint: Checkpoint, prefix: str) -> bool:
    """Return whether the checkpoint holds this projection's weight in such a format."""
    return any(checkpoint.has(f"{prefix}.{kind}") for kind in ("weight_packed", "weight_scale", "weight_scale_inv"))


def take_compressed(
    checkpoint: Checkpoint, prefix: str, shape: tuple[int, int], published: PublishedQuantization
) -> PublishedWeight:
    """Take the projection [out, in] under a prefix.

    Raises:
        CheckpointError: Tensors are missing, or their shapes or numbers do not match.
    """
    for kind in _UNUSED:
        checkpoint.discard(f"{prefix}.{kind}")
    if checkpoint.has(f"{prefix}.weight_global_scale"):
        raise CheckpointError(f"{prefix}.weight_global_scale: NVFP4 weights are not supported")
    if not checkpoint.has(f"{prefix}.weight_packed"):
        return _take_codes(checkpoint, prefix, shape, published)
    if checkpoint.dtype(f"{prefix}.weight_packed") == torch.uint8:
        return _take_mxfp4(checkpoint, prefix, shape)
    return _take_packed(checkpoint, prefix, shape, published)


def _take_mxfp4(checkpoint: Checkpoint, prefix: str, shape: tuple[int, int]) -> Mxfp4Weight:
    num_out, num_in = shape
    if num_in % MXFP4_GROUP:
        raise CheckpointError(f"{prefix}: {num_in} inputs do not divide into groups of {MXFP4_GROUP}")
    codes = checkpoint.take_integers(f"{prefix}.weight_packed", (num_out, num_in // 2), torch.uint8)
    exponents = checkpoint.take_integers(f"{prefix}.weight_scale", (num_out, num_in // MXFP4_GROUP), torch.uint8)
    return Mxfp4Weight(codes.clone(), exponents.clone())


def _take_packed(
    checkpoint: Checkpoint, prefix: str, shape: tuple[int, int], published: PublishedQuantization
) -> GroupWeight | ChannelWeight:
    num_out, num_in = shape
    bits, per_word = published.bits, published.codes_per_word
    # Groups of one size are the rule; a projection may still have one scale for each output.
    is_grouped = checkpoint.shape(f"{prefix}.weight_scale")[1:] != (1,)
    size = (published.group_size or num_in) if is_grouped else num_in
    if num_in % size or num_in % per_word:
        raise CheckpointError(
            f"{prefix}: {num_in} inputs do not divide into groups of {size} and words of {per_word} codes"
        )
    groups = num_in // size
    codes = unpack(checkpoint.take_integers(f"{prefix}.weight_packed", (num_out, num_in // per_word)), bits)
    scales = checkpoint.take(f"{prefix}.weight_scale", (num_out, groups)).float()
    zeros = _take_zeros(checkpoint, prefix, num_out, groups, published)
    order = None
    if checkpoint.has(f"{prefix}.weight_g_idx"):
        group_of_input = checkpoint.take_integers(f"{prefix}.weight_g_idx", (num_in,)).long()
        order = group_order(group_of_input, groups, f"{prefix}.weight_g_idx")
    if order is not None:
        codes = codes.index_select(1, order)
    if zeros is None:
        middle = 1 << (bits - 1)
        if bits == 8 and groups == 1:
            return ChannelWeight(codes.int().sub_(middle).to(torch.int8), scales.flatten())
        zeros = torch.full_like(scales, middle)
    return split_large_groups(GroupWeight(codes, scales, zeros, bits, order))


def _take_zeros(
    checkpoint: Checkpoint, prefix: str, num_out: int, groups: int, published: PublishedQuantization
) -> torch.Tensor | None:
    """Return the zero points [out, groups] in units of codes; None: the codes are symmetric."""
    name = f"{prefix}.weight_zero_point"
    if not checkpoint.has(name):
        return None
    if checkpoint.dtype(name) == torch.int8:
        zeros = checkpoint.take_integers(name, (num_out, groups), torch.int8)
        return zeros.float().add_(1 << (published.bits - 1))
    if num_out % published.codes_per_word:
        raise CheckpointError(f"{name}: {num_out} outputs do not fill words of {published.codes_per_word} codes")
    words = checkpoint.take_integers(name, (num_out // published.codes_per_word, groups))
    return unpack(words.t().contiguous(), published.bits).t().float().contiguous()


def _take_codes(
    checkpoint: Checkpoint, prefix: str, shape: tuple[int, int], published: PublishedQuantization
) -> ChannelWeight | PlainWeight:
    """Take codes of one byte: int8, or fp8 with scales of outputs or blocks."""
    name = f"{prefix}.weight"
    if not checkpoint.has(name):
        raise CheckpointError(f"missing tensor {name}")
    dtype = checkpoint.dtype(name)
    if dtype not in (torch.int8, torch.float8_e4m3fn):
        raise CheckpointError(f"{name}: expected int8 or float8_e4m3fn numbers beside a scale, got {dtype}")
    scale_name = next(found for found in (f"{name}_scale", f"{name}_scale_inv") if checkpoint.has(found))
    num_scales = checkpoint.shape(scale_name)
    # fp8 checkpoints with one scale for each tensor or output leave the block's size out, which then has its default.
    if published.block is not None and num_scales not in ((), (1,), (checkpoint.shape(name)[0], 1)):
        return _take_blocks(checkpoint, name, scale_name, shape, published.block)
    codes = checkpoint.take_integers(name, shape, dtype)
    if num_scales in ((), (1,), (1, 1)):
        scales = checkpoint.take(scale_name, num_scales).float().flatten().expand(shape[0]).contiguous()
    else:
        scales = checkpoint.take(scale_name, (shape[0], *num_scales[1:2])).float().flatten()
        if scales.numel() != shape[0]:
            raise CheckpointError(f"{scale_name}: expected one number for each output, got {list(num_scales)}")
    # A copy, because kernels need aligned memory, which a mapped file does not have.
    return ChannelWeight(codes.clone(), scales)


def _take_blocks(
    checkpoint: Checkpoint, name: str, scale_name: str, shape: tuple[int, int], block: tuple[int, int]
) -> PlainWeight:
    if checkpoint.shape(name) != shape and any(size % step for size, step in zip(shape, block, strict=True)):
        raise CheckpointError(f"{name}: blocks of {block[0]} x {block[1]} cannot be split over these processes")
    codes = checkpoint.take_integers(name, shape, checkpoint.dtype(name)).float()
    num_blocks = (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
    scales = checkpoint.take(scale_name, num_blocks).float()
    wide = scales.repeat_interleave(block[0], 0)[: shape[0]].repeat_interleave(block[1], 1)[:, : shape[1]]
    return PlainWeight(codes.mul_(wide))
