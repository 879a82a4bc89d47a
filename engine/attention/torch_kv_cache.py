"""KV pools of the PyTorch backend: token-major, head-major for compiled steps, or int8 with scales."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from math import prod
from typing import Protocol

import torch

from engine.attention.base import AttentionSpec
from engine.attention.gathered_prompt import PromptMemory
from engine.attention.gathered_rows import GatheredSequences
from engine.huge_pages import HugePages, release_pages

INT8_MAX = 127.0
_TINY = 1e-12
_MOST_PADDING_BYTES = 2048
"""Maximum padding of a block in bytes: half of the 4 KiB after which addresses share a set of a core's L1 cache."""


def unwritten_zeros(*shape: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return zeros that take main memory only where they are written; `torch.zeros` writes all of it."""
    if device.type == "cpu":
        # A mapping of its own: the C library would clear memory that it had before.
        num_bytes = prod(shape) * dtype.itemsize
        memory = mmap.mmap(-1, max(1, num_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return torch.frombuffer(memory, dtype=torch.uint8)[:num_bytes].view(dtype).view(shape)
    return torch.zeros(shape, dtype=dtype, device=device)


class AttentionScratch:
    """Named buffers that the next call reuses, because fresh pages cost more than the copy into them."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return a tensor of this shape with the content of the name's last use."""
        size = 1
        for length in shape:
            size *= length
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size or buffer.dtype != dtype:
            # An ordinary tensor can be written both in and out of inference mode.
            with torch.inference_mode(False):
                buffer = self._buffers[name] = torch.empty(size, dtype=dtype, device=device)
        return buffer[:size].view(shape)


class ReadableKVCache(Protocol):
    """Pool interface of the PyTorch backend."""

    retained: GatheredSequences
    """Gathered keys and values of decoding sequences."""
    prompt: PromptMemory
    """Gathered keys and values of a prompt in chunks."""
    is_windowed: bool
    """True if the pool has the slots and tables of windowed layers."""

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] at the given slots."""
        ...

    def span(self, start: int, count: int, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [count, kv_heads, head_dim] of consecutive slots, valid until the next read."""
        ...

    def gather(self, slots: torch.Tensor, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [count, kv_heads, head_dim] of any slots, int64 [count]."""
        ...

    def gather_blocks(
        self, blocks: torch.Tensor, block_size: int, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [count * block_size, kv_heads, head_dim] of any blocks, int64 [count]."""
        ...

    def stored(
        self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [T, kv_heads, head_dim] as a read at `slots` int64 [T] would after their write."""
        ...

    def clear(self, blocks: torch.Tensor, block_size: int) -> None:
        """Clear blocks int64 [count], so that unwritten slots read as finite numbers."""
        ...


class TorchKVCache:
    """Token-major pool of one layer: keys and values, each [slots, kv_heads, head_dim]."""

    __slots__ = ("is_windowed", "keys", "prompt", "retained", "values")

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, *, is_windowed: bool = False) -> None:
        self.is_windowed = is_windowed
        self.retained = GatheredSequences()
        self.prompt = PromptMemory()
        self.keys = keys
        self.values = values

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] at the given slots."""
        self.keys.index_copy_(0, slot_mapping, keys)
        self.values.index_copy_(0, slot_mapping, values)

    def span(self, start: int, count: int, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of the pool."""
        return self.keys.narrow(0, start, count), self.values.narrow(0, start, count)

    def gather(self, slots: torch.Tensor, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies in memory that the next call reuses."""
        return _gather("keys", self.keys, slots, scratch), _gather("values", self.values, slots, scratch)

    def gather_blocks(
        self, blocks: torch.Tensor, block_size: int, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies in memory that the next call reuses; block copies are longer and fewer than slot copies."""
        keys = _gather("keys", _by_block(self.keys, block_size), blocks, scratch)
        values = _gather("values", _by_block(self.values, block_size), blocks, scratch)
        return keys.view(-1, *self.keys.shape[1:]), values.view(-1, *self.values.shape[1:])

    def stored(
        self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the arguments unchanged."""
        return keys, values

    def clear(self, blocks: torch.Tensor, block_size: int) -> None:
        """Fill the blocks with zeros."""
        _by_block(self.keys, block_size).index_fill_(0, blocks, 0.0)
        _by_block(self.values, block_size).index_fill_(0, blocks, 0.0)


class SlotPlaces:
    """Indices of slots in head-major pools, computed once for all layers of a step."""

    def __init__(self) -> None:
        self._slots: torch.Tensor | None = None
        self._found: tuple[torch.Tensor, ...] = ()

    def begin(self, slots: torch.Tensor) -> None:
        """Set the slots that the step writes."""
        self._slots, self._found = slots, ()

    def of(self, slots: torch.Tensor, block_size: int) -> tuple[torch.Tensor, ...]:
        """Return the block of each slot, its place there, the index of its pair of places, and its half of the pair."""
        if slots is not self._slots:
            return _divided(slots, block_size)
        if not self._found:
            self._found = _divided(slots, block_size)
        return self._found


def _divided(slots: torch.Tensor, block_size: int) -> tuple[torch.Tensor, ...]:
    place = slots.remainder(block_size)
    return slots.div(block_size, rounding_mode="floor"), place, place.div(2, rounding_mode="floor"), place.remainder(2)


class BlockMemory:
    """Memory of head-major pools of several layers: all numbers of a block lie side by side.

    A pool takes the memory of the blocks that were written. With memory of its own, each layer would take whole huge
    pages for the first token, a hundred megabytes in thirty layers.
    """

    def __init__(self, num_blocks: int, block_size: int, specs: Sequence[AttentionSpec], dtype: torch.dtype) -> None:
        """Reserve zeros for all layers. Garbage would not do: unwritten slots have weight 0, and 0 * NaN is NaN."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        numbers = sum(2 * block_size * spec.num_kv_heads * spec.head_dim for spec in specs)
        padding = block_padding(block_size, specs, dtype.itemsize) // dtype.itemsize
        self._blocks = HugePages().zeros(num_blocks, numbers + padding, dtype=dtype)
        self._num_taken = 0

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of keys and values."""
        return self._blocks.dtype

    def take(self, *shape: int) -> torch.Tensor:
        """Return the next numbers of every block as [blocks, *shape], which are not taken yet."""
        start, size = self._num_taken, prod(shape)
        self._num_taken += size
        return self._blocks[:, start : start + size].view(self.num_blocks, *shape)

    def release(self) -> None:
        """Give the memory back to the system until blocks are written again; all blocks read as zeros."""
        release_pages(self._blocks)


def block_padding(block_size: int, specs: Sequence[AttentionSpec], element_bytes: int) -> int:
    """Return the bytes between two blocks of a head-major pool.

    Without them, the blocks of a layer would lie a multiple of 4 KiB apart, and one head's keys of all blocks would
    share a small part of a core's cache.
    """
    of_head = block_size * element_bytes * max((spec.head_dim for spec in specs), default=0)
    return min(of_head, _MOST_PADDING_BYTES)


class HeadMajorKVCache:
    """Head-major pool of one layer.

    Keys are [blocks, kv_heads, head_dim, block_size, 1], values [blocks, kv_heads, block_size, head_dim, 1], in
    float32. In bfloat16, pairs of rows are interleaved: keys [.., head_dim / 2, block_size, 2] and values [..,
    block_size / 2, head_dim, 2]. Reads return float32.
    """

    __slots__ = (
        "_block_size",
        "_in_pairs",
        "_memory",
        "_places",
        "is_windowed",
        "keys",
        "prompt",
        "retained",
        "values",
    )

    def __init__(
        self, memory: BlockMemory, spec: AttentionSpec, places: SlotPlaces, *, is_windowed: bool = False
    ) -> None:
        """Take the layer's part of a memory."""
        self.retained = GatheredSequences()
        self.prompt = PromptMemory()
        self._memory = memory
        self._block_size = block_size = memory.block_size
        self._places = places
        self._in_pairs = memory.dtype == torch.bfloat16
        self.is_windowed = is_windowed
        together = 2 if self._in_pairs else 1
        self.keys = memory.take(spec.num_kv_heads, spec.head_dim // together, block_size, together)
        self.values = memory.take(spec.num_kv_heads, block_size // together, spec.head_dim, together)

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] at the given slots."""
        key_pool, value_pool, key_places, value_places = self._find(slot_mapping)
        key_pool.index_put_(key_places, keys.to(key_pool.dtype).view(-1, *key_pool.shape[2:]))
        value_pool.index_put_(value_places, values.to(value_pool.dtype))

    def span(self, start: int, count: int, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies in memory that the next call reuses."""
        first, place = divmod(start, self._block_size)
        num_blocks = -(-(place + count) // self._block_size)
        blocks = self.keys.narrow(0, first, num_blocks), self.values.narrow(0, first, num_blocks)
        keys, values = self._read(*blocks, scratch)
        return keys.narrow(0, place, count), values.narrow(0, place, count)

    def gather(self, slots: torch.Tensor, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies."""
        key_pool, value_pool, key_places, value_places = self._find(slots)
        keys, values = key_pool[key_places].float(), value_pool[value_places].float()
        return keys.reshape(values.shape), values

    def gather_blocks(
        self, blocks: torch.Tensor, block_size: int, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies in memory that the next call reuses."""
        return self._read(self.keys.index_select(0, blocks), self.values.index_select(0, blocks), scratch)

    def stored(
        self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the arguments rounded to the pool's dtype."""
        dtype = self.keys.dtype
        return keys.to(dtype).to(keys.dtype), values.to(dtype).to(values.dtype)

    def clear(self, blocks: torch.Tensor, block_size: int) -> None:
        """Fill the blocks with zeros."""
        self.keys.index_fill_(0, blocks, 0.0)
        self.values.index_fill_(0, blocks, 0.0)

    def release(self) -> None:
        """Release the memory that the layer shares with others; all blocks of these layers read as zeros."""
        self.retained, self.prompt = GatheredSequences(), PromptMemory()
        self._memory.release()

    def _find(
        self, slots: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """Return views of both pools by position, and the indices of the slots in each."""
        keys, values = self.keys.permute(0, 3, 1, 2, 4), self.values.permute(0, 2, 4, 1, 3)
        block, place, pair, which = self._places.of(slots, self._block_size)
        if self._in_pairs:
            return keys, values, (block, place), (block, pair, which)
        return keys, values.squeeze(2), (block, place), (block, place)

    def _read(
        self, keys: torch.Tensor, values: torch.Tensor, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return blocks of the pool as [positions, kv_heads, head_dim]."""
        found = []
        for name, blocks in (("keys", keys.permute(0, 3, 1, 2, 4)), ("values", values.permute(0, 2, 4, 1, 3))):
            out = scratch.take(name, tuple(blocks.shape), torch.float32, blocks.device)
            found.append(out.copy_(blocks).view(-1, keys.shape[1], values.shape[3]))
        return found[0], found[1]


class QuantizedKVCache:
    """Int8 pool of one layer with scales [slots, kv_heads]: largest magnitude / 127, set at each write.

    The rounding error is at most half a scale.
    """

    __slots__ = ("_dtype", "is_windowed", "key_scales", "keys", "prompt", "retained", "value_scales", "values")

    def __init__(
        self, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device, *, is_windowed: bool = False
    ) -> None:
        """Allocate the pool.

        Args:
            shape: Slots, KV heads, head size.
            dtype: Dtype of reads.
            device: Device of the pool.
            is_windowed: True for the slots of windowed layers.
        """
        self.is_windowed = is_windowed
        self._dtype = dtype
        self.retained = GatheredSequences()
        self.prompt = PromptMemory()
        self.keys, self.values = (unwritten_zeros(*shape, dtype=torch.int8, device=device) for _ in range(2))
        self.key_scales, self.value_scales = (
            unwritten_zeros(*shape[:2], dtype=torch.float32, device=device) for _ in range(2)
        )

    def write(self, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Quantize and store keys and values [T, kv_heads, head_dim] at the given slots."""
        for source, codes, scales in ((keys, self.keys, self.key_scales), (values, self.values, self.value_scales)):
            source = source.float()
            source_scales = source.abs().amax(2).div_(INT8_MAX).clamp_(min=_TINY)
            codes.index_copy_(0, slot_mapping, source.div(source_scales.unsqueeze(2)).round_().to(torch.int8))
            scales.index_copy_(0, slot_mapping, source_scales)

    def span(self, start: int, count: int, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return dequantized numbers in memory that the next call reuses."""
        return (
            self._read("keys", self.keys.narrow(0, start, count), self.key_scales.narrow(0, start, count), scratch),
            self._read(
                "values", self.values.narrow(0, start, count), self.value_scales.narrow(0, start, count), scratch
            ),
        )

    def gather(self, slots: torch.Tensor, scratch: AttentionScratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return dequantized numbers in memory that the next call reuses."""
        keys = _gather("key_codes", self.keys, slots, scratch)
        values = _gather("value_codes", self.values, slots, scratch)
        key_scales, value_scales = (scales.index_select(0, slots) for scales in (self.key_scales, self.value_scales))
        return self._read("keys", keys, key_scales, scratch), self._read("values", values, value_scales, scratch)

    def gather_blocks(
        self, blocks: torch.Tensor, block_size: int, scratch: AttentionScratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return dequantized numbers in memory that the next call reuses."""
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
        """Return the arguments as quantized and dequantized again, read from the pool."""
        return self.gather(slots, scratch)

    def clear(self, blocks: torch.Tensor, block_size: int) -> None:
        """Set the scales to 0, so that any codes read as 0."""
        _by_block(self.key_scales, block_size).index_fill_(0, blocks, 0.0)
        _by_block(self.value_scales, block_size).index_fill_(0, blocks, 0.0)

    def _read(self, name: str, codes: torch.Tensor, scales: torch.Tensor, scratch: AttentionScratch) -> torch.Tensor:
        out = scratch.take(name, tuple(codes.shape), self._dtype, codes.device)
        return out.copy_(codes).mul_(scales.unsqueeze(2))


def _by_block(pool: torch.Tensor, block_size: int) -> torch.Tensor:
    """Return a view of the pool with one row for each block."""
    return pool.view(pool.shape[0] // block_size, -1)


def _gather(name: str, pool: torch.Tensor, slots: torch.Tensor, scratch: AttentionScratch) -> torch.Tensor:
    out = scratch.take(name, (slots.numel(), *pool.shape[1:]), pool.dtype, pool.device)
    return torch.index_select(pool, 0, slots, out=out)
