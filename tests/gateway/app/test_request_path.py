"""A warm streamed request stays readable: how many of our files its way leads through."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.gateway.stack import Stack, chat, encode, running

ROOT: Final = Path(__file__).resolve().parents[3]
MAX_FILES: Final = 56
NUM_TRIES: Final = 25
_REQUEST: Final = encode(chat(stream=True), headers={"connection": "keep-alive"})
_END: Final = b"data: [DONE]\n\n\r\n0\r\n\r\n"


async def streamed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_REQUEST)
    reply = await asyncio.wait_for(reader.readuntil(_END), 10)
    assert reply.startswith(b"HTTP/1.1 200 ")


async def functions_entered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> frozenset[tuple[str, str]]:
    """Return each of our functions that ran between a request and the end of its stream, behind its file."""
    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        await streamed(reader, writer)
    finally:
        sys.setprofile(None)
    inside = (str(ROOT / "gateway"), str(ROOT / "routing_policies"))
    return frozenset((str(Path(file).relative_to(ROOT)), name) for file, name in seen if file.startswith(inside))


async def functions_on_the_way(stack: Stack) -> frozenset[tuple[str, str]]:
    """Return what every one of a few requests enters: a request meets the process' own chores now and then."""
    reader, writer = await stack.connect()
    try:
        await streamed(reader, writer)
        tries = [await functions_entered(reader, writer) for _ in range(NUM_TRIES)]
    finally:
        writer.close()
    return frozenset.intersection(*tries)


async def test_a_warm_streamed_request_enters_few_files(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        files = {file for file, _ in await functions_on_the_way(stack)}
    assert "gateway/pipeline.py" in files
    assert len(files) <= MAX_FILES, "\n".join(sorted(files))
