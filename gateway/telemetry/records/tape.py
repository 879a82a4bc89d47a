"""Tape: requests recorded for replay, in files of a bounded total size and age. Off unless the settings enable it."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from gateway.telemetry.logs.redaction import REDACTED, is_secret_name, redact
from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.records.segments import Segments, newest_segments
from gateway.timeline import Outcome
from gateway.util.fair_bounded_dict import FairRecent
from gateway.util.private_files import open_private, private_tree, replace_file
from routing_policies.exploration.draw import propensities_of
from routing_policies.policy.members import group_of
from routing_policies.replay import Ended, RecordedRequest, RecordedVerdict

FLUSH_S: Final = 1.0
MAX_WAITING: Final = 20_000
"""Number of recorded requests not yet on disk; beyond it they are dropped and counted."""
MAX_ANSWERS: Final = 20_000
"""Number of recorded requests that feedback can still name; beyond it, the tenant with the most loses its oldest."""
SALT_FILE: Final = "salt"
_SALT_BYTES: Final = 16
_BYTES_PER_TOKEN: Final = 4
_OTHER_MODEL: Final = "small-model"
"""Step of the degradation ladder after which other candidates than the route's are chosen among."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RecordedRequest).decode
_decode_verdict = msgspec.json.Decoder(RecordedVerdict).decode
_VERDICT_BEGINS: Final = b'{"verdict_of":'
_ENDED: Final[dict[Outcome, Ended]] = {
    Outcome.COMPLETED: "answered",
    Outcome.CACHED: "answered",
    Outcome.SHED: "shed",
    Outcome.UPSTREAM_FAILED: "failed",
    Outcome.UPSTREAM_TIMEOUT: "failed",
    Outcome.FAILED: "failed",
}


class Recording(NamedTuple):
    """Contents of a recording, oldest first."""

    requests: list[RecordedRequest]
    verdicts: list[RecordedVerdict]


class Tape:
    """Recording of one process; several processes may share a folder, each with files of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        holder: str,
        max_bytes: int,
        retention_s: float,
        keeps_text: bool,
        wall: Callable[[], float],
    ) -> None:
        """Create a closed recording.

        Args:
            folder: Folder of the recordings.
            holder: Name of this process, part of its file names.
            max_bytes: Total size of all files in the folder.
            retention_s: Age in seconds beyond which a file is deleted.
            keeps_text: True to record prompts, not only features.
            wall: Wall clock, in seconds since 1970.
        """
        self.folder = folder
        self.keeps_text = keeps_text
        self.num_dropped = 0
        self._segments = Segments(folder, holder=holder, max_bytes=max_bytes, retention_s=retention_s, wall=wall)
        self._wall = wall
        self._waiting: list[RecordedRequest | RecordedVerdict] = []
        self._answers: FairRecent[str, _Answer] = FairRecent(MAX_ANSWERS)
        """Recorded requests that a verdict may still name."""
        self._writing = threading.Lock()
        self.salt = b""

    def open(self) -> None:
        """Create the folder and its salt, which protects digests of short texts; raises OSError."""
        private_tree(self.folder)
        path = self.folder / SALT_FILE
        with suppress(FileExistsError), open_private(path, "xb") as stream:
            stream.write(secrets.token_bytes(_SALT_BYTES))
        self.salt = path.read_bytes()
        if len(self.salt) != _SALT_BYTES:  # damaged: a new salt, so earlier digests no longer match
            self.salt = secrets.token_bytes(_SALT_BYTES)
            replace_file(path, self.salt)

    def digest(self, value: str | None) -> str:
        """Return a keyed digest of the value, equal for equal values; empty for none."""
        return blake2b(value.encode(errors="surrogatepass"), digest_size=8, key=self.salt).hexdigest() if value else ""

    def note(self, record: RequestRecord) -> None:
        """Queue a finished request."""
        sample: dict[str, Any] | None = record.sample
        ended = None if record.outcome is None else _ENDED.get(record.outcome)
        if sample is None or ended is None:
            return  # not recorded, or without information: the client left, or the request was invalid
        if len(self._waiting) >= MAX_WAITING:
            self.num_dropped += 1
            return
        self._answers.put(record.request_id, _Answer(record.tenant), record.tenant)
        usage, first_at = record.usage, record.timeline.first_token_at
        ttft_ms = None if first_at is None else (first_at - record.timeline.started_at) * 1000
        self._waiting.append(
            RecordedRequest(
                at=self._wall(),
                tenant=record.tenant,
                model=record.model,
                lane=record.lane,
                route=record.route,
                deployment=group_of(record.deployment) if record.cache_reason != "shared" else "",
                cache="off" if record.cache_reason == "policy" else record.cache,
                ended=ended,
                prompt_tokens=sample["prompt_bytes"] // _BYTES_PER_TOKEN if usage is None else usage.prompt_tokens,
                output_tokens=0 if usage is None else usage.completion_tokens,
                ttft_ms=ttft_ms if ended == "answered" else None,
                policy=record.policy,
                stream=record.stream,
                id=record.request_id,
                **_choice_of(record),
                **sample,
            )
        )

    def note_wrong(self, request_id: str, tenant: str) -> bool:
        """Record that a product found an answer wrong; return False for a request that was not recorded here."""
        answer = self._answers.get(request_id)
        if answer is None or answer.tenant != tenant:
            return False
        if not answer.is_wrong:  # a verdict is recorded once
            answer.is_wrong = True
            self._add(RecordedVerdict(verdict_of=request_id, tenant=tenant, at=self._wall(), by="feedback"))
        return True

    def note_audit(self, request_id: str, tenant: str, *, is_wrong: bool) -> None:
        """Record the verdict of an audit on a similar answer that was served."""
        made = RecordedVerdict(verdict_of=request_id, tenant=tenant, at=self._wall(), by="audit", is_wrong=is_wrong)
        self._add(made)

    def _add(self, item: RecordedRequest | RecordedVerdict) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.num_dropped += 1
        else:
            self._waiting.append(item)

    async def run(self) -> None:
        """Write queued requests until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await asyncio.to_thread(self.flush)

    def flush(self) -> None:
        """Write queued requests, and delete what is too old; when the disk is full requests are dropped and counted."""
        with self._writing:
            waiting, self._waiting = self._waiting, []
            self._write(waiting)

    def _write(self, waiting: list[RecordedRequest | RecordedVerdict]) -> None:
        try:
            self._segments.write([_encode(_redacted(request)) for request in waiting])
        except OSError:
            self.num_dropped += len(waiting)


class _Answer:
    """Tenant of a recorded request, and whether feedback has named it."""

    __slots__ = ("is_wrong", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.is_wrong = False


def _choice_of(record: RequestRecord) -> dict[str, Any]:
    """Return the first routing decision with its probabilities; nothing where another route's candidates stood in."""
    if not record.decisions or _OTHER_MODEL in record.degraded:
        return {}
    decision = record.decisions[0]
    if decision.deployment is None:  # it waited for a permit of the emptiest candidate
        if record.attempts != 1:
            return {}
        return {"choice": (choice := group_of(record.deployment)), "propensities": {choice: 1.0}}
    ranked = () if decision.ranked is None else decision.ranked.views
    able = {group_of(view.id) for view in ranked}
    return {
        "choice": group_of(decision.deployment),
        "propensities": {name: round(share, 9) for name, share in propensities_of(decision).items()},
        "excluded": tuple(sorted({group_of(name) for name in decision.dropped} - able)),
    }


def _redacted(request: RecordedRequest | RecordedVerdict) -> RecordedRequest | RecordedVerdict:
    """Return the request without the secrets in its free text."""
    if isinstance(request, RecordedVerdict) or (request.text is None and not request.headers):
        return request
    headers = {name: REDACTED if is_secret_name(name) else redact(value) for name, value in request.headers.items()}
    text = None if request.text is None else redact(request.text)
    return msgspec.structs.replace(request, headers=headers, text=text)


def has_recording(folder: Path) -> bool:
    """Return whether the folder holds any recording."""
    return bool(newest_segments(folder))


def read_tape(folder: Path, limit: int) -> Recording:
    """Return up to `limit` of the newest recorded requests, and the verdicts; unreadable lines are skipped."""
    requests: list[RecordedRequest] = []
    verdicts: list[RecordedVerdict] = []
    for path in newest_segments(folder):
        found = list(_lines(path))
        verdicts += (item for item in found if isinstance(item, RecordedVerdict))
        requests += reversed([item for item in found if isinstance(item, RecordedRequest)])
        if len(requests) >= limit:
            break
    by_time = sorted(verdicts, key=lambda verdict: verdict.at)
    return Recording(sorted(requests[:limit], key=lambda request: request.at), by_time)


def _lines(path: Path) -> Iterator[RecordedRequest | RecordedVerdict]:
    with suppress(FileNotFoundError), path.open("rb") as stream:
        for line in stream:
            with suppress(msgspec.DecodeError):  # cut off by a crash, or written by another version
                yield _decode_verdict(line) if line.startswith(_VERDICT_BEGINS) else _decode(line)
