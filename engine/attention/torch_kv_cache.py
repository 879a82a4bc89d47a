"""The KV pool of the PyTorch backend: plain, head by head as compiled steps read it, or int8 with a scale for each
position and head."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.attention.base import AttentionSpec
from engine.attention.gathered_prompt import PromptRow
from engine.attention.gathered_rows import GatheredRows
from engine.huge_pages import HugePages

INT8_MAX = 127.0
_TINY = 1e-12


class AttentionScratch:
    """Named buffers that the next call reuses: fresh pages cost more than the copy into them."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A tensor of this shape, its content left over from the last use of the name."""
        size = 1
        for length in shape:
            size *= length
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size or buffer.dtype != dtype:
            # An ordinary tensor, so that it can be written both in and out of inference mode.
            with torch.inference_mode(False):
                buffer = self._buffers[name] = torch.empty(size, dtype=dtype, device=device)
        return buffer[:size].view(shape)


class ReadableKVCache(Protocol):
    """What the backend needs of a pool."""

    kept: GatheredRows
    """What decoding rows keep of what they gathered."""
    prompt: PromptRow
    """The same of a prompt in chunks."""

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] at the given slots."""
        ...

    def span(self, start: int, count: int, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [count, kv_heads, head_dim] of consecutive slots, until the next read."""
        ...

    def gather(self, slots: torch.Tensor, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """The same of any slots, int64 [count]."""
        ...

    def gather_blocks(
        self, blocks: torch.Tensor, block_size: int, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same of all slots of any blocks, int64 [count]: [count * block_size, kv_heads, head_dim]."""
        ...

    def stored(
        self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What is read at the slots int64 [T] to which keys and values [T, kv_heads, head_dim] were written."""
        ...

    def clear(self, blocks: torch.Tensor, block_size: int) -> None:
        """Forget what blocks int64 [count] hold, so that slots not written yet are finite numbers."""
        ...


class TorchKVCache:
    """Keys and values of one layer, each [slots, kv_heads, head_dim]."""

    __slots__ = ("kept", "keys", "prompt", "values")

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.kept = GatheredRows()
        self.prompt = PromptRow()
        self.keys = keys
        self.values = values

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] at the given slots."""
        self.keys.index_copy_(0, slot_mapping, keys)
        self.values.index_copy_(0, slot_mapping, values)

    def span(self, start: int, count: int, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of the pool."""
        return self.keys.narrow(0, start, count), self.values.narrow(0, start, count)

    def gather(self, slots: torch.Tensor, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies, in memory that the next call reuses."""
        return _gather("keys", self.keys, slots, scratch), _gather("values", self.values, slots, scratch)

    def gather_blocks(
        self, blocks: torch.Tensor, block_size: int, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies, in memory that the next call reuses; fewer and longer ones than slot by slot."""
        keys = _gather("keys", _by_block(self.keys, block_size), blocks, scratch)
        values = _gather("values", _by_block(self.values, block_size), blocks, scratch)
        return keys.view(-1, *self.keys.shape[1:]), values.view(-1, *self.values.shape[1:])

    def stored(
        self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same numbers."""
        return keys, values

    def clear(self, blocks: torch.Tensor, block_size: int) -> None:
        """Zeros."""
        _by_block(self.keys, block_size).index_fill_(0, blocks, 0.0)
        _by_block(self.values, block_size).index_fill_(0, blocks, 0.0)


class SlotPlaces:
    """Where slots lie in pools whose blocks lie head by head, found once for all layers of a step."""

    def __init__(self) -> None:
        self._slots: torch.Tensor | None = None
        self._found: tuple[torch.Tensor, ...] = ()

    def begin(self, slots: torch.Tensor) -> None:
        """A step writes to these slots."""
        self._slots, self._found = slots, ()

    def of(self, slots: torch.Tensor, block_size: int) -> tuple[torch.Tensor, ...]:
        """Block of each slot, place in it, the pair of places that it is one of, and which: int64."""
        if slots is not self._slots:
            return _divided(slots, block_size)
        if not self._found:
            self._found = _divided(slots, block_size)
        return self._found


def _divided(slots: torch.Tensor, block_size: int) -> tuple[torch.Tensor, ...]:
    place = slots.remainder(block_size)
    return slots.div(block_size, rounding_mode="floor"), place, place.div(2, rounding_mode="floor"), place.remainder(2)


class HeadMajorKVCache:
    """One layer's keys [blocks, kv_heads, head_dim, block_size, 1], values [blocks, kv_heads, block_size, head_dim, 1].

    In float32, or rounded to bfloat16, of which two rows stand in pairs: [.., head_dim / 2, block_size, 2] and
    [.., block_size / 2, head_dim, 2]. Read as float32.
    """

    __slots__ = ("_block_size", "_in_pairs", "_places", "kept", "keys", "prompt", "values")

    def __init__(
        self, num_blocks: int, block_size: int, spec: AttentionSpec, dtype: torch.dtype, places: SlotPlaces
    ) -> None:
        self.kept = GatheredRows()
        self.prompt = PromptRow()
        self._block_size = block_size
        self._places = places
        self._in_pairs = dtype == torch.bfloat16
        together = 2 if self._in_pairs else 1
        of_head, pages = (num_blocks, spec.num_kv_heads), HugePages()
        # Zeros, not garbage: slots never written have weight 0, and 0 * NaN is NaN.
        self.keys = pages.zeros(*of_head, spec.head_dim // together, block_size, together, dtype=dtype)
        self.values = pages.zeros(*of_head, block_size // together, spec.head_dim, together, dtype=dtype)

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] at the given slots."""
        key_pool, value_pool, key_places, value_places = self._find(slot_mapping)
        key_pool.index_put_(key_places, keys.to(key_pool.dtype).view(-1, *key_pool.shape[2:]))
        value_pool.index_put_(value_places, values.to(value_pool.dtype))

    def span(self, start: int, count: int, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies, in memory that the next call reuses."""
        first, place = divmod(start, self._block_size)
        num_blocks = -(-(place + count) // self._block_size)
        blocks = self.keys.narrow(0, first, num_blocks), self.values.narrow(0, first, num_blocks)
        keys, values = self._read(*blocks, scratch)
        return keys.narrow(0, place, count), values.narrow(0, place, count)

    def gather(self, slots: torch.Tensor, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies."""
        key_pool, value_pool, key_places, value_places = self._find(slots)
        keys, values = key_pool[key_places].float(), value_pool[value_places].float()
        return keys.reshape(values.shape), values

    def gather_blocks(
        self, blocks: torch.Tensor, block_size: int, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies, in memory that the next call reuses."""
        return self._read(self.keys.index_select(0, blocks), self.values.index_select(0, blocks), scratch)

    def stored(
        self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As they came out of their rounding."""
        dtype = self.keys.dtype
        return keys.to(dtype).to(keys.dtype), values.to(dtype).to(values.dtype)

    def clear(self, blocks: torch.Tensor, block_size: int) -> None:
        """Zeros."""
        self.keys.index_fill_(0, blocks, 0.0)
        self.values.index_fill_(0, blocks, 0.0)

    def _find(
        self, slots: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """Both pools by position, the same memory, and where slots lie in each."""
        keys, values = self.keys.permute(0, 3, 1, 2, 4), self.values.permute(0, 2, 4, 1, 3)
        block, place, pair, which = self._places.of(slots, self._block_size)
        if self._in_pairs:
            return keys, values, (block, place), (block, pair, which)
        return keys, values.squeeze(2), (block, place), (block, place)

    def _read(
        self, keys: torch.Tensor, values: torch.Tensor, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Blocks of the pool as [positions, kv_heads, head_dim]."""
        found = []
        for name, blocks in (("keys", keys.permute(0, 3, 1, 2, 4)), ("values", values.permute(0, 2, 4, 1, 3))):
            out = scratch.take(name, tuple(blocks.shape), torch.float32, blocks.device)
            found.append(out.copy_(blocks).view(-1, keys.shape[1], values.shape[3]))
        return found[0], found[1]


class QuantizedKVCache:
    """int8 keys and values of one layer with scales [slots, kv_heads]: largest magnitude / 127, set when stored.

    No number moves by more than half its scale.
    """

    __slots__ = ("_dtype", "kept", "key_scales", "keys", "prompt", "value_scales", "values")

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        """`shape`: slots, kv_heads, head_dim; `dtype`: of what is read."""
        self._dtype = dtype
        self.kept = GatheredRows()
        self.prompt = PromptRow()
        self.keys = torch.zeros(shape, dtype=torch.int8, device=device)
        self.values = torch.zeros_like(self.keys)
        self.key_scales = torch.zeros(shape[:2], dtype=torch.float32, device=device)
        self.value_scales = torch.zeros_like(self.key_scales)

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Quantize and store keys and values [T, kv_heads, head_dim] at the given slots."""
        for source, codes, scales in ((keys, self.keys, self.key_scales), (values, self.values, self.value_scales)):
            source = source.float()
            source_scales = source.abs().amax(2).div_(INT8_MAX).clamp_(min=_TINY)
            codes.index_copy_(0, slot_mapping, source.div(source_scales.unsqueeze(2)).round_().to(torch.int8))
            scales.index_copy_(0, slot_mapping, source_scales)

    def span(self, start: int, count: int, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Written out as floating-point numbers, in memory that the next call reuses."""
        return (
            self._read("keys", self.keys.narrow(0, start, count), self.key_scales.narrow(0, start, count), scratch),
            self._read(
                "values", self.values.narrow(0, start, count), self.value_scales.narrow(0, start, count), scratch
            ),
        )

    def gather(self, slots: torch.Tensor, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Written out as floating-point numbers, in memory that the next call reuses."""
        keys = _gather("key_codes", self.keys, slots, scratch)
        values = _gather("value_codes", self.values, slots, scratch)
        key_scales, value_scales = (scales.index_select(0, slots) for scales in (self.key_scales, self.value_scales))
        return self._read("keys", keys, key_scales, scratch), self._read("values", values, value_scales, scratch)

    def gather_blocks(
        self, blocks: torch.Tensor, block_size: int, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Written out as floating-point numbers, in memory that the next call reuses."""
        found = []
        for name, codes, scales in (
            ("keys", self.keys, self.key_scales),
            ("values", self.values, self.value_scales),
        ):
            codes_found = _gather(f"{name[:-1]}_codes", _by_block(codes, block_size), blocks, scratch)
            scales_found = _by_block(scales, block_size).index_select(0, blocks)
            shape = (-1, *codes.shape[1:])
            found.append(self._read(name, codes_found.view(shape), scales_found.view(shape[:2]), scratch))
        return found[0], found[1]

    def stored(
        self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As they came out of their rounding."""
        return self.gather(slots, scratch)

    def clear(self, blocks: torch.Tensor, block_size: int) -> None:
        """Scales of 0: whatever the codes are."""
        _by_block(self.key_scales, block_size).index_fill_(0, blocks, 0.0)
        _by_block(self.value_scales, block_size).index_fill_(0, blocks, 0.0)

    def _read(self, name: str, codes: torch.Tensor, scales: torch.Tensor, scratch: AttentionScratch) -> torch.Tensor:
        out = scratch.take(name, tuple(codes.shape), self._dtype, codes.device)
        return out.copy_(codes).mul_(scales.unsqueeze(2))


def _by_block(pool: torch.Tensor, block_size: int) -> torch.Tensor:
    """The pool with one row for each block, the same memory."""
    return pool.view(pool.shape[0] // block_size, -1)


def _gather(name: str, pool: torch.Tensor, slots: torch.Tensor, scratch: AttentionScratch) -> torch.Tensor:
    out = scratch.take(name, (slots.numel(), *pool.shape[1:]), pool.dtype, pool.device)
    return torch.index_select(pool, 0, slots, out=out)
