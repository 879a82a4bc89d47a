"""Sequences for tests that need no scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from engine.step.sequence import Sequence
from tests.engine.core.fakes import make_add


def sequence(
    prompt: Iterable[int], output: Iterable[int] = (), *, seq_id: int = 1, arrival_index: int = 0, **options: Any
) -> Sequence:
    """Return a waiting sequence received at 0 s; `options` are fields of the request or of its parameters."""
    add = make_add(seq_id, list(prompt))
    params = {name: options.pop(name) for name in list(options) if name in add.params.__struct_fields__}
    add = msgspec.structs.replace(add, params=msgspec.structs.replace(add.params, **params), **options)
    found = Sequence.from_add(add, arrival_index=arrival_index, received_at=0.0)
    found.token_ids.extend(output)
    return found
