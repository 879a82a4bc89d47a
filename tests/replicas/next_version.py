"""A gateway of the next minor version: `python -m tests.replicas.next_version MINORS gateway …`.

It marks the store with its schema, and adds a member to every record and every cached response that it writes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from gateway.access import audit_log
from gateway.cache.exact.sealed import seal, unseal
from gateway.store import schema
from gateway.store.redis.store import RedisStore

MEMBER = "of_the_next_version"


def extended(value: bytes) -> bytes:
    """A JSON object or a sealed map with one more member; anything else as it is."""
    if value.startswith(b"{"):
        return json.dumps({**json.loads(value), MEMBER: True}).encode()
    data = unseal(value)
    if data is None:
        return value
    content = msgspec.msgpack.decode(data)
    return seal(msgspec.msgpack.encode({**content, MEMBER: True})) if isinstance(content, dict) else value


class NextAuditEntry(audit_log.AuditEntry, frozen=True, kw_only=True):
    """A line of the audit log with one more member, which its hash covers."""

    of_the_next_version: bool = True


def extend() -> None:
    """Make every store of this process write as the next version does."""
    put = RedisStore.put

    async def put_more(self: RedisStore, space: str, key: str, value: bytes, **options: Any) -> int | None:
        is_mark = space == schema.SPACE
        return await put(self, space, key, value if is_mark else extended(value), **options)

    RedisStore.put = put_more  # type: ignore[method-assign]
    audit_log.AuditEntry = NextAuditEntry  # type: ignore[misc]


if __name__ == "__main__":
    minors = int(sys.argv.pop(1))
    version = schema.SchemaVersion(schema.SCHEMA.major, schema.SCHEMA.minor + minors)
    schema.StampedStore.__init__.__defaults__ = (version,)
    extend()
    from gateway.cli.main import main

    sys.exit(main())
