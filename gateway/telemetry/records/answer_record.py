"""AnswerRecord: one recorded answer with all that it takes to produce it again, and the draft of one."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from gateway.telemetry.records.model_state import NOTHING_STATED, ModelState, stated_in, with_fingerprint
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Outcome

MAX_TEXT_BYTES: Final = 1024 * 1024
"""Length of a recorded request, and of a recorded answer; a longer one is not recorded."""
SEED_BITS: Final = 31
"""Bits of a seed that the gateway draws: servers in C read no longer ones."""
_ANSWERED: Final = frozenset({Outcome.COMPLETED, Outcome.CACHED})


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recorded answer; texts are whole."""

    id: str
    """Id of the request. It is the first member, by which a reader finds the line."""
    at: float
    """Time of the record, in seconds since 1970."""
    tenant: str
    model: str
    """Model name in the request."""
    route: str
    policy: str
    """Revision of the policy."""
    deployment: str
    """Deployment that answered; empty where a cached response was served."""
    target: str = ""
    """URL and model name of that deployment."""
    adapter: str = ""
    stream: bool = False
    request: str
    """Body as the client sent it, as one of chat completions where the client speaks another API."""
    sent: str
    """The body after trimming and with the seed: what a deployment gets, but for the name of the model."""
    keeps_whole: bool = False
    """True if the client turned trimming off."""
    headers: dict[str, str] = {}
    """Request headers that routes match."""
    seed: int | None = None
    """Seed of the sampler, the client's or one that the gateway drew; None where none was sent."""
    is_repeatable: bool = True
    """False if the answer was sampled without a seed."""
    trimmed: dict[str, int] = {}
    """Tokens cut by each trimming strategy."""
    degraded: tuple[str, ...] = ()
    cache: str = "bypass"
    """Result of the cache."""
    cache_reason: str = "policy"
    cache_scope: str = ""
    """Scope of the route's cache; empty where it is off."""
    cache_entry: str = ""
    """Cache entry that was served: the id of the request that made it."""
    cache_age_s: float = 0.0
    state: ModelState = NOTHING_STATED
    answer: str
    """Whole answer, a JSON completion."""

    @property
    def is_cached(self) -> bool:
        """Return whether a cached response was served."""
        return self.cache.startswith("hit_")


class Copy(Protocol):
    """Bounded copy of an answer on its way to the client."""

    @property
    def num_bytes(self) -> int:
        """Return the bytes that the copy holds."""
        ...

    def completion(self) -> bytes | None:
        """Return the whole completion, or None when it is too long or not whole."""
        ...


class AnswerRecording:
    """What becomes an AnswerRecord, gathered while the request is served; nothing here waits."""

    __slots__ = (
        *("_sent", "adapter", "answer", "cache_age_s", "cache_scope", "capture", "headers", "is_greedy"),
        *("keeps_whole", "request", "seed", "trimmed_request"),
    )

    def __init__(self, request: bytes, headers: dict[str, str]) -> None:
        """Begin a draft; `headers` are those that routes match."""
        self.request = request
        self.headers = headers
        self.trimmed_request = request
        """The body after trimming."""
        self.keeps_whole = False
        self.adapter = ""
        self.cache_scope = ""
        self.seed: int | None = None
        self.is_greedy = False
        """True if the request wants the most likely tokens, so that its answer needs no seed."""
        self.capture: Copy | None = None
        """Copy of a deployment's answer."""
        self.answer: bytes | None = None
        """Cached response that was served."""
        self.cache_age_s = 0.0
        self._sent: dict[str, _Sent] = {}
        """What each deployment was sent; there are several with a hedge or a retry."""

    @property
    def num_bytes(self) -> int:
        """Return the bytes of all texts that the draft holds."""
        copied = 0 if self.capture is None else self.capture.num_bytes
        return len(self.request) + len(self.trimmed_request) + copied + len(self.answer or b"")

    def note_sent(self, deployment: str, target: str, body: bytes | None, *, takes_seed: bool) -> None:
        """Note what goes to a deployment; a body of None means that it cannot be sent again."""
        self._sent[deployment] = _Sent(target, body, takes_seed=takes_seed)

    def note_response(self, deployment: str, headers: list[tuple[bytes, bytes]]) -> None:
        """Note what a deployment's answer states of its model."""
        sent = self._sent.get(deployment)
        if sent is not None:
            sent.state = stated_in(headers)

    def record(self, record: RequestRecord, at: float) -> AnswerRecord | None:
        """Return the record of a finished request; None where there is no whole answer, or it is too long.

        Long answers are decoded, so this belongs on a thread.
        """
        if record.outcome not in _ANSWERED or record.status != 200:
            return None
        if record.outcome is Outcome.CACHED:
            return None if self.answer is None else self._made(record, at, self.answer, None)
        sent = self._sent.get(record.deployment)
        answer = None if self.capture is None else self.capture.completion()
        return None if answer is None or sent is None or sent.body is None else self._made(record, at, answer, sent)

    def _made(self, record: RequestRecord, at: float, answer: bytes, sent: _Sent | None) -> AnswerRecord | None:
        body = self.trimmed_request if sent is None or sent.body is None else sent.body
        if max(len(self.request), len(body), len(answer)) > MAX_TEXT_BYTES:
            return None
        extra: dict[str, Any] = {}
        if sent is not None:
            extra = {
                "deployment": record.deployment,
                "target": sent.target,
                "state": with_fingerprint(sent.state, answer),
                "seed": self.seed if sent.takes_seed else None,
                "is_repeatable": self.is_greedy or (self.seed is not None and sent.takes_seed),
            }
        try:
            return AnswerRecord(
                **{
                    "id": record.request_id,
                    "at": at,
                    "tenant": record.tenant,
                    "model": record.model,
                    "route": record.route,
                    "policy": record.policy,
                    "deployment": "",
                    "adapter": self.adapter,
                    "stream": record.stream,
                    "request": self.request.decode(),
                    "sent": body.decode(),
                    "keeps_whole": self.keeps_whole,
                    "headers": self.headers,
                    "trimmed": dict(record.trimmed),
                    "degraded": record.degraded,
                    "cache": str(record.cache),
                    "cache_reason": record.cache_reason,
                    "cache_scope": self.cache_scope,
                    "cache_entry": record.cache_entry or "",
                    "cache_age_s": round(self.cache_age_s, 3),
                    "answer": answer.decode(),
                    **extra,
                }
            )
        except UnicodeDecodeError:  # a server's answer that is no UTF-8 has no text to compare
            return None


class _Sent:
    """What one deployment was sent, and what it stated with its answer."""

    __slots__ = ("body", "state", "takes_seed", "target")

    def __init__(self, target: str, body: bytes | None, *, takes_seed: bool) -> None:
        self.target = target
        self.body = body
        self.takes_seed = takes_seed
        self.state = NOTHING_STATED
