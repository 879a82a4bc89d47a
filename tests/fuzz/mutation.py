"""A fuzzer for where no coverage is had: inputs of the corpus, changed at random in the usual ways, from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

MAX_BYTES: Final = 16 * 1024
_ODD_BYTES: Final = (
    *(b"\x00", b"\xff", b"\r", b"\n", b"\r\n", b" ", b"\t"),
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b":", b","),
)
_ODD_NUMBERS: Final = (
    *(b"0", b"-1", b"1e999", b"NaN", b"9" * 30, b"0x10"),
    *(b"+5", b"1_0", b"4294967296", b"-0.0", b"true"),
)
_ODD_INTEGERS: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def mutants(corpus: Sequence[bytes], seed: str, tokens: Sequence[bytes] = ()) -> Iterator[bytes]:
    """Endless inputs near those of the corpus; `tokens` are words of the format."""
    rng = random.Random(seed)
    odd = (*_ODD_BYTES, *_ODD_NUMBERS, *tokens)
    while True:
        data = bytearray(rng.choice(corpus))
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            _change(data, rng, corpus, odd)
        yield bytes(data[:MAX_BYTES])


def _change(data: bytearray, rng: random.Random, corpus: Sequence[bytes], odd: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 2, 4, 16, 200)))
    kind = rng.randrange(9)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[at:at] = rng.choice(odd)
    elif kind == 2:
        data[at:end] = rng.choice(odd)
    elif kind == 3:
        del data[at:end]
    elif kind == 4:
        data[at:at] = data[at:end] * rng.choice((1, 2, 50))
    elif kind == 5:
        other = rng.choice(corpus)
        start = rng.randrange(len(other) + 1)
        data[at:end] = other[start : start + rng.randrange(1, 64)]
    elif kind == 6:
        del data[at:]
    elif kind == 7:
        width = rng.choice((1, 2, 4, 8))
        value = rng.choice(_ODD_INTEGERS) & ((1 << 8 * width) - 1)
        data[at : at + width] = value.to_bytes(width, rng.choice(("little", "big")))
    else:
        data[at:end] = bytes(rng.randrange(256) for _ in range(end - at))
