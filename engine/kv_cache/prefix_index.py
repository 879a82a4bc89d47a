"""Prefix index: full blocks by a digest chained from a salted root."""

from __future__ import annotations

from hashlib import blake2b

from engine.step.sequence import Sequence

_DIGEST_BYTES = 16
_SALT_BYTES = 16


class PrefixIndex:
    """Index of blocks by the tokens from the sequence's start to the block's end; holds no references.

    A hit compares the block's token ids and its parent's digest, so a digest collision is only a miss.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._blocks: dict[bytes, int] = {}
        # Registration of each block: (own digest, parent's digest and token ids).
        self._entries: list[tuple[bytes, bytes] | None] = [None] * num_blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def holds(self, block_id: int) -> bool:
        """Return whether the block's content is in the index."""
        return self._entries[block_id] is not None

    def digest(self, seq: Sequence, index: int) -> bytes:
        """Return the digest of the sequence's full block `index`; the sequence stores the chain up to it."""
        digests = seq.block_digests
        while len(digests) <= index:
            digests.append(blake2b(self._link(seq, len(digests)), digest_size=_DIGEST_BYTES).digest())
        return digests[index]

    def find(self, seq: Sequence, index: int) -> int | None:
        """Return the block with the same tokens as the sequence's block `index` and all before it, or None."""
        block_id = self._blocks.get(self.digest(seq, index))
        if block_id is None:
            return None
        entry = self._entries[block_id]
        assert entry is not None
        return block_id if entry[1] == self._link(seq, index) else None

    def insert(self, seq: Sequence, index: int) -> None:
        """Add the sequence's computed block `index`, unless an equal one is in the index."""
        digest = self.digest(seq, index)
        if digest in self._blocks:
            return
        block_id = seq.block_table[index]
        assert self._entries[block_id] is None
        self._blocks[digest] = block_id
        self._entries[block_id] = (digest, self._link(seq, index))

    def drop(self, block_id: int) -> None:
        """Remove the block's content from the index, if any."""
        entry = self._entries[block_id]
        if entry is not None:
            self._entries[block_id] = None
            del self._blocks[entry[0]]

    def check_integrity(self) -> None:
        """Raise AssertionError unless digests and blocks map one to one."""
        entries = {entry[0]: block_id for block_id, entry in enumerate(self._entries) if entry is not None}
        assert entries == self._blocks, "prefix index: digests and blocks disagree"

    def _link(self, seq: Sequence, index: int) -> bytes:
        """Return the input of block `index`'s digest: the parent's digest, then the block's token ids."""
        parent = seq.block_digests[index - 1] if index else _root_digest(seq)
        start = index * self._block_size
        return parent + seq.token_ids[start : start + self._block_size].tobytes()


def _root_digest(seq: Sequence) -> bytes:
    """Return the root digest of a sequence's chain; different salts or adapters never share a digest.

    A later load under the same name counts as another adapter.
    """
    load_id = 0 if seq.adapter is None else seq.adapter.load_id
    of_adapter = load_id.to_bytes(_SALT_BYTES, "big")
    return blake2b(seq.cache_salt, digest_size=_DIGEST_BYTES, person=b"penstock-root", salt=of_adapter).digest()
