"""ModelState: what a deployment stated of its model with an answer: digests, quantization, software."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

STATE_HEADER: Final = b"x-penstock-model-state"
"""Header that requests the statement of one of our engines, and the header of its answer."""
STATE_REQUEST: Final = (STATE_HEADER, b"1")
_STATED: Final = re.compile(
    rb"(?P<model>[0-9a-f]{8,64});(?P<quantization>[A-Za-z0-9_./-]{1,96});"
    rb"(?P<template>[0-9a-f]{8,64});(?P<engine>[0-9a-f]{8,64})"
)
MAX_FINGERPRINT_CHARS: Final = 128


class ModelState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a deployment's model at one answer; empty where the deployment stated nothing."""

    model: str = ""
    """Digest of the model's files without its chat template, then that of the adapter's files where one answered."""
    quantization: str = ""
    """Quantization at load, dtype of the weights, dtype of the KV pool."""
    template: str = ""
    """Digest of the files with the chat template."""
    engine: str = ""
    """Digest that also covers the engine's libraries and its machine."""
    fingerprint: str = ""
    """`system_fingerprint` of the answer, as other servers state it."""

    @property
    def is_stated(self) -> bool:
        """Return whether the deployment stated anything that another answer can be compared with."""
        return bool(self.model or self.fingerprint)


NOTHING_STATED: Final = ModelState()


def stated_in(headers: Iterable[tuple[bytes, bytes]]) -> ModelState:
    """Return what the headers of an answer state; a malformed statement counts as none."""
    value = next((value for name, value in headers if name == STATE_HEADER), b"")
    found = _STATED.fullmatch(value)
    if found is None:
        return NOTHING_STATED
    return ModelState(**{name: part.decode("ascii") for name, part in found.groupdict().items()})


class _Fingerprinted(msgspec.Struct):
    system_fingerprint: str | None = None


_decode: Final = msgspec.json.Decoder(_Fingerprinted).decode


def with_fingerprint(state: ModelState, answer: bytes) -> ModelState:
    """Return the state with the `system_fingerprint` of a whole JSON answer, where it has one."""
    try:
        found = _decode(answer).system_fingerprint
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return state
    return msgspec.structs.replace(state, fingerprint=found[:MAX_FINGERPRINT_CHARS]) if found else state
