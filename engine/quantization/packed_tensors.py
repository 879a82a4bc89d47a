"""Reader of one projection of a quantized checkpoint; here the formats of AWQ, GPTQ and GGUF.

`engine.models.gguf.blocks` converts the blocks of GGUF. AWQ and GPTQ pack codes into int32 words, the first in the
lowest bits; inputs are rows and outputs are columns.

    GPTQ   qweight [in / n, out]     a word holds n inputs of one output
           qzeros  [groups, out / n] a word holds n outputs; stored one too low in the first format
           scales  [groups, out], g_idx [in]: the group of every input (`desc_act` gives it in any order)
    AWQ    qweight [in, out / n]     a word holds 8 outputs of one input, in the order 0 2 4 6 1 3 5 7
           qzeros  [groups, out / n] the same way
           scales  [groups, out]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.published import PublishedQuantization
from engine.models.gguf.blocks import Mxfp4Values
from engine.quantization.compressed_tensors import is_compressed, take_compressed
from engine.quantization.packed_words import group_order, split_large_groups, unpack
from engine.quantization.weights import GroupWeight, Mxfp4Weight, PublishedWeight

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def is_packed(checkpoint: Checkpoint, prefixes: Sequence[str], published: PublishedQuantization | None) -> bool:
    """Return whether the checkpoint holds the weights of projections of the same inputs in packed form."""
    if published is not None and published.method == "gguf":
        return all(checkpoint.has_blocks(f"{prefix}.weight") for prefix in prefixes)
    return checkpoint.has(f"{prefixes[0]}.qweight") or is_compressed(checkpoint, prefixes[0])


def take_packed(
    checkpoint: Checkpoint, prefix: str, shape: tuple[int, int], published: PublishedQuantization
) -> PublishedWeight:
    """Take the projection [out, in] under a prefix.

    Raises:
        CheckpointError: Tensors are missing, or their shapes do not match.
    """
    if published.method == "gguf":
        return _take_blocks(checkpoint, f"{prefix}.weight", shape)
    if published.method not in ("awq", "gptq"):
        return take_compressed(checkpoint, prefix, shape, published)
    num_out, num_in = shape
    group_size = published.group_size or num_in
    if num_in % group_size or num_in % published.codes_per_word or num_out % published.codes_per_word:
        raise CheckpointError(
            f"{prefix}: [{num_out}, {num_in}] does not divide into groups of {group_size} inputs "
            f"and words of {published.codes_per_word} codes"
        )
    take = _take_awq if published.method == "awq" else _take_gptq
    return split_large_groups(take(checkpoint, prefix, shape, num_in // group_size, published))


def discard_empty_bias(checkpoint: Checkpoint, prefix: str) -> None:
    """Discard the bias of zeros that some exporters write for projections without one."""
    name = f"{prefix}.bias"
    if checkpoint.has(name) and checkpoint.is_zero(name):
        checkpoint.discard(name)


def _take_blocks(checkpoint: Checkpoint, name: str, shape: tuple[int, int]) -> GroupWeight | Mxfp4Weight:
    values = checkpoint.take_blocks(name, shape)
    if isinstance(values, Mxfp4Values):
        return Mxfp4Weight(values.codes, values.exponents)
    # A group without a scale holds its offset only: code 0 with the zero -1 is once the scale.
    is_constant = values.scales == 0
    scales = torch.where(is_constant, values.offsets, values.scales)
    zeros = torch.where(is_constant, -1.0, -values.offsets / values.scales)
    codes = values.codes
    if is_constant.any():
        codes.view(*scales.shape, -1)[is_constant] = 0
    return GroupWeight(codes, scales, zeros, values.bits)


def _take_gptq(
    checkpoint: Checkpoint, prefix: str, shape: tuple[int, int], num_groups: int, published: PublishedQuantization
) -> GroupWeight:
    num_out, num_in = shape
    per_word, bits = published.codes_per_word, published.bits
    words = checkpoint.take_integers(f"{prefix}.qweight", (num_in // per_word, num_out))
    codes = unpack(words.t().contiguous(), bits)
    zeros = unpack(checkpoint.take_integers(f"{prefix}.qzeros", (num_groups, num_out // per_word)), bits)
    # A zero point of 0 is stored as all ones; the mask restores it.
    zeros = zeros.int().add_(published.zero_offset).bitwise_and_((1 << bits) - 1)
    scales = checkpoint.take(f"{prefix}.scales", (num_groups, num_out)).float()
    order = None
    if checkpoint.has(f"{prefix}.g_idx"):
        group_of_input = checkpoint.take_integers(f"{prefix}.g_idx", (num_in,)).long()
        order = group_order(group_of_input, num_groups, f"{prefix}.g_idx")
    if order is not None:
        codes = codes.index_select(1, order)
    return GroupWeight(codes, scales.t().contiguous(), zeros.t().float().contiguous(), bits, order)


def _take_awq(
    checkpoint: Checkpoint, prefix: str, shape: tuple[int, int], num_groups: int, published: PublishedQuantization
) -> GroupWeight:
    num_out, num_in = shape
    num_words = num_out // published.codes_per_word
    codes = _in_order(unpack(checkpoint.take_integers(f"{prefix}.qweight", (num_in, num_words)), published.bits))
    zeros = _in_order(unpack(checkpoint.take_integers(f"{prefix}.qzeros", (num_groups, num_words)), published.bits))
    scales = checkpoint.take(f"{prefix}.scales", (num_groups, num_out)).float()
    return GroupWeight(codes.t().contiguous(), scales.t().contiguous(), zeros.t().float().contiguous(), published.bits)


def _in_order(codes: torch.Tensor) -> torch.Tensor:
    """Return [rows, out] with the outputs of each word in order."""
    words = codes.view(codes.shape[0], -1, len(_AWQ_ORDER))
    ordered = torch.empty_like(words)
    ordered[:, :, list(_AWQ_ORDER)] = words
    return ordered.flatten(1)
