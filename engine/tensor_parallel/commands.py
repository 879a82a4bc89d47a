"""What the leader tells the others to do with it next, as frames over one Unix socket each.

Sockets rather than collectives: an idle engine waits here for hours, and a process that is gone is an end of file.
"""

from __future__ import annotations

import socket
import struct

import msgspec

_LENGTH = struct.Struct("<I")


class OpenPool(msgspec.Struct, frozen=True, tag=True):
    """Make an empty KV pool; the last one is given back."""

    num_blocks: int


class Forward(msgspec.Struct, frozen=True, tag=True):
    """Compute a step; its token ids, positions, slots and block tables are sent through the group."""

    query_starts: list[int]
    context_lens: list[int]
    num_columns: int
    """Of the block tables."""


class Logits(msgspec.Struct, frozen=True, tag=True):
    """Compute logits; the hidden states are sent through the group."""

    num_rows: int


Command = OpenPool | Forward | Logits
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Command)


class LeaderGoneError(EOFError):
    """The socket's other end is closed."""


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
