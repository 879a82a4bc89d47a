"""Joining of quantized weights with the same inputs into one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.quantization.weights import ChannelWeight, GroupWeight, Mxfp4Weight, PlainWeight, PublishedWeight


def join_outputs(parts: Sequence[PublishedWeight]) -> PublishedWeight | None:
    """Return one weight with the outputs of all parts in order; None: their formats differ."""
    if len(parts) == 1:
        return parts[0]
    if groups := [part for part in parts if isinstance(part, GroupWeight)]:
        return _join_groups(groups) if len(groups) == len(parts) else None
    if channels := [part for part in parts if isinstance(part, ChannelWeight)]:
        if len(channels) < len(parts) or len({part.codes.dtype for part in channels}) > 1:
            return None
        dtype = channels[0].codes.dtype
        # Bytes, because not every operation knows fp8.
        codes = torch.cat([part.codes.view(torch.uint8) for part in channels]).view(dtype)
        return ChannelWeight(codes, torch.cat([part.scales for part in channels]))
    if mxfp4 := [part for part in parts if isinstance(part, Mxfp4Weight)]:
        if len(mxfp4) < len(parts):
            return None
        codes = torch.cat([part.codes for part in mxfp4])
        return Mxfp4Weight(codes, torch.cat([part.exponents for part in mxfp4]))
    return PlainWeight(torch.cat([part.codes for part in parts]))


def join_any(parts: Sequence[PublishedWeight]) -> PublishedWeight:
    """Return one weight with the outputs of all parts in order, whatever their formats.

    Groups become those of the smallest size, and codes those of the most bits. Other mixtures are dequantized.
    """
    groups = [part for part in parts if isinstance(part, GroupWeight) and part.order is None]
    size = min((part.group_size for part in groups), default=0)
    if len(groups) < len(parts) or any(part.group_size % size for part in groups):
        return PlainWeight(torch.cat([part.dequantize() for part in parts]))
    repeats = [part.group_size // size for part in groups]
    scales = torch.cat([part.scales.repeat_interleave(count, 1) for part, count in zip(groups, repeats, strict=True)])
    zeros = torch.cat([part.zeros.repeat_interleave(count, 1) for part, count in zip(groups, repeats, strict=True)])
    return GroupWeight(torch.cat([part.codes for part in groups]), scales, zeros, max(part.bits for part in groups))


def _join_groups(parts: Sequence[GroupWeight]) -> GroupWeight | None:
    first = parts[0]
    if not all(_fit_together(first, part) for part in parts):
        return None
    columns = zip(*((part.codes, part.scales, part.zeros) for part in parts), strict=True)
    codes, scales, zeros = (torch.cat(tensors) for tensors in columns)
    return GroupWeight(codes, scales, zeros, first.bits, first.order)


def _fit_together(one: GroupWeight, other: GroupWeight) -> bool:
    if one.group_size != other.group_size or one.bits != other.bits:
        return False
    if one.order is None or other.order is None:
        return one.order is other.order
    return torch.equal(one.order, other.order)
