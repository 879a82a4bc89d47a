"""A name server on a real UDP socket that answers by script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

Zone = dict[tuple[str, str], "list[str] | str"]
"""Records by name and type; a text is the code of a failure, such as SERVFAIL, or `silent`."""


class ScriptedDns(asyncio.DatagramProtocol):
    """Answers from `zone`, which a test may change at any time; a name without any record does not exist."""

    def __init__(self) -> None:
        self.zone: Zone = {}
        self.ttl_s = 7
        self.questions: list[tuple[str, str]] = []
        self.server = ""
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        host, port = transport.get_extra_info("sockname")[:2]
        self.server = f"{host}:{port}"

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text(), dns.rdatatype.to_text(question.rdtype)
        self.questions.append((name, kind))
        found = self.zone.get((name, kind), [])
        if found == "silent":
            return
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if isinstance(found, str):
            response.set_rcode(dns.rcode.from_text(found))
        elif not any(known == name for known, _ in self.zone):
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif found:
            response.answer.append(dns.rrset.from_text(name, self.ttl_s, "IN", kind, *found))
        self._transport.sendto(response.to_wire(), addr)


@asynccontextmanager
async def scripted_dns() -> AsyncIterator[ScriptedDns]:
    """A server on a free port of 127.0.0.1."""
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        ScriptedDns, local_addr=("127.0.0.1", 0)
    )
    try:
        yield server
    finally:
        transport.close()
