"""Commands from the leader to the followers, as frames over one Unix socket each.

Sockets suit this better than collectives: an idle engine waits for hours, and a lost process is an end of file.
"""

from __future__ import annotations

import socket
import struct

import msgspec

_LENGTH = struct.Struct("<I")


class OpenPool(msgspec.Struct, frozen=True, tag=True):
    """Command to allocate an empty KV pool; the previous one is freed."""

    num_blocks: int


class Forward(msgspec.Struct, frozen=True, tag=True):
    """Command to compute a step; the group broadcasts its token ids, positions, slots and block tables."""

    query_starts: list[int]
    context_lens: list[int]
    num_columns: int
    """Number of columns of the block tables."""


class Logits(msgspec.Struct, frozen=True, tag=True):
    """Command to compute logits; the group broadcasts the hidden states."""

    num_rows: int


Command = OpenPool | Forward | Logits
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Command)


class LeaderGoneError(EOFError):
    """The leader has closed its socket."""


def send_command(sock: socket.socket, command: Command) -> None:
    """Write one frame. Raises OSError."""
    content = _encoder.encode(command)
    sock.sendall(_LENGTH.pack(len(content)) + content)


def receive_command(sock: socket.socket) -> Command:
    """Read one frame. Raises LeaderGoneError at the end of the stream."""
    (length,) = _LENGTH.unpack(_read(sock, _LENGTH.size))
    command: Command = _decoder.decode(_read(sock, length))
    return command


def _read(sock: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = sock.recv(size - len(content))
        if not part:
            raise LeaderGoneError("the leader has closed its socket")
        content += part
    return bytes(content)
