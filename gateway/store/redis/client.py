"""Connections of the client library: to one Redis, to the primary that Sentinels name, or to a Cluster.

Retries are off: whether a second try is worth its time is decided above. The library drops the connection of a command
that was cancelled or timed out, so that the next command cannot read its answer. Old versions did not;
`tests/gateway/store/redis/test_client.py` holds the installed one to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import BlockingConnectionPool, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from gateway.store.address import StoreAddress
from gateway.store.base import StoreLoss, StoreUnavailable
from gateway.store.redis.cluster import ClusterClient
from gateway.store.redis.sentinel import SENTINEL_TIMEOUT_S, PrimaryFinder

MAX_CONNECTIONS: Final = 32
MAX_UNQUEUED: Final = 1024
"""Maximum number of connections where the library has no queue and fails at the bound."""
POOL_WAIT_S: Final = 5.0
"""Wait for a connection, longer than the timeout of any operation."""
MIN_SOCKET_TIMEOUT_S: Final = 1.0
"""Least socket timeout, for connections whose operation has timed out."""

RedisClient = Redis | ClusterClient

_LOSSES: Final = (
    ("READONLY", StoreLoss.READ_ONLY),
    ("NOREPLICAS", StoreLoss.READ_ONLY),
    ("MISCONF", StoreLoss.READ_ONLY),
    ("OOM", StoreLoss.FULL),
    ("NOPERM", StoreLoss.REFUSED),
    ("NOAUTH", StoreLoss.REFUSED),
    ("WRONGPASS", StoreLoss.REFUSED),
    ("BUSY", StoreLoss.SLOW),
    ("LOADING", StoreLoss.DOWN),
    ("MASTERDOWN", StoreLoss.DOWN),
    ("CLUSTERDOWN", StoreLoss.DOWN),
    ("TRYAGAIN", StoreLoss.MOVING),
)
"""Reasons by the first word of an error; in a script's error it stands further on."""


def connect(address: StoreAddress, *, timeout_s: float) -> RedisClient:
    """Return a client that connects when it is first used."""
    socket_timeout_s = max(timeout_s * 4, MIN_SOCKET_TIMEOUT_S)
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_timeout": socket_timeout_s,
        "socket_connect_timeout": socket_timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }
    tls: dict[str, Any] = {"ssl_ca_certs": str(address.ca_file)} if address.ca_file is not None else {}
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return ClusterClient(
            startup_nodes=nodes,
            ssl=address.is_tls,
            max_connections=MAX_UNQUEUED,
            require_full_coverage=False,
            **tls,
            **options,
        )
    if address.kind == "sentinel":
        return _behind_sentinels(address, {**options, **tls}, max(2 * timeout_s, SENTINEL_TIMEOUT_S))
    kind: type[Connection] | type[UnixDomainSocketConnection] = SSLConnection if address.is_tls else Connection
    where: dict[str, Any] = {"path": str(address.path)}
    if address.path is not None:
        kind = UnixDomainSocketConnection
    else:
        ((host, port),) = address.hosts
        where = {"host": host, "port": port, "socket_keepalive": True, **tls}
    pool = BlockingConnectionPool(
        max_connections=MAX_CONNECTIONS, timeout=POOL_WAIT_S, connection_class=kind, db=address.db, **where, **options
    )
    return Redis.from_pool(pool)


def _behind_sentinels(address: StoreAddress, options: dict[str, Any], timeout_s: float) -> Redis:
    sentinel_options = {name: value for name, value in options.items() if name not in ("username", "password")}
    sentinel_options |= {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "ssl": address.is_tls}
    sentinel = PrimaryFinder(
        list(address.hosts),
        sentinel_kwargs=sentinel_options,
        ssl=address.is_tls,
        db=address.db,
        max_connections=MAX_UNQUEUED,
        **options,
    )
    client: Redis = sentinel.master_for(address.service)
    return client


async def close(client: RedisClient) -> None:
    """Close a client's connections, those to Sentinels included."""
    if isinstance(client, ClusterClient):
        await client.end_checks()
    await client.aclose()
    pool = getattr(client, "connection_pool", None)
    if isinstance(pool, SentinelConnectionPool):
        for each_sentinel in pool.sentinel_manager.sentinels:
            await each_sentinel.aclose()


async def drop_old_primary(client: RedisClient) -> None:
    """Drop the idle connections to a primary that the Sentinels have replaced; it may still accept writes."""
    pool = getattr(client, "connection_pool", None)
    if isinstance(pool, SentinelConnectionPool):
        await pool.get_master_address()  # type: ignore[no-untyped-call]


@contextmanager
def translated() -> Iterator[None]:
    """Raise the library's errors as StoreUnavailable."""
    try:
        yield
    except exceptions.DataError:
        raise  # a fault of ours, not of Redis
    except exceptions.ResponseError as error:
        loss = _loss_of(str(error), error)
        was_sent = loss not in (StoreLoss.FULL, StoreLoss.MOVING)
        raise StoreUnavailable(loss, str(error), was_sent=was_sent) from error
    except (exceptions.AuthenticationError, exceptions.AuthorizationError) as error:
        raise StoreUnavailable(StoreLoss.REFUSED, str(error), was_sent=False) from error
    except exceptions.ConnectionError as error:
        was_sent = not isinstance(error.__cause__ or error.__context__, ConnectionRefusedError | FileNotFoundError)
        raise StoreUnavailable(_loss_of(str(error), error), str(error), was_sent=was_sent) from error
    except (TimeoutError, exceptions.TimeoutError) as error:
        raise StoreUnavailable(StoreLoss.SLOW, str(error) or "no answer") from error
    except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
        raise StoreUnavailable(StoreLoss.DOWN, str(error) or type(error).__name__) from error


def _loss_of(message: str, error: Exception) -> StoreLoss:
    if isinstance(error, exceptions.ReadOnlyError):
        return StoreLoss.READ_ONLY
    if isinstance(error, exceptions.OutOfMemoryError):
        return StoreLoss.FULL
    if isinstance(error, exceptions.TryAgainError):
        return StoreLoss.MOVING  # the library leaves out the first word
    for word, loss in _LOSSES:
        if message.startswith(word) or f"-{word} " in message:
            return loss
    if isinstance(error, exceptions.NoPermissionError):
        return StoreLoss.REFUSED
    if "read only replica" in message:
        return StoreLoss.READ_ONLY  # the library leaves out the first word
    if isinstance(error, exceptions.ConnectionError | exceptions.ClusterError):
        return StoreLoss.DOWN
    return StoreLoss.REFUSED
