"""Dry runs of a policy: whom it reaches, and its effect on recorded requests. Nothing is changed here."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from msgspec import Meta
from starlette.responses import Response

from gateway.access.identity import Role
from gateway.admin.api.errors import BadPolicy
from gateway.admin.api.fields import RequestBody
from gateway.admin.api.request import MAX_DOCUMENT_SUBMISSION_BYTES, AdminRequest, serves
from gateway.admin.handlers.policy import PATH, PolicyHandlers, Text
from gateway.api.application import ApiResponse
from gateway.config.settings import GatewayConfig
from gateway.errors import InvalidRequest
from gateway.policies.replaying import ReplayFailed, ReplayRequest, replay
from gateway.policies.source import PolicySource
from gateway.telemetry.records.tape import Tape, has_recording
from routing_policies.policy.diff import diff
from routing_policies.policy.document import Policy
from routing_policies.policy.editing import EditError, parse_path, remove_value, set_value
from routing_policies.policy.problems import Path, PolicyError

_MAX_EDITS: Final = 100
_NOTHING_RECORDED: Final = 'nothing is recorded (telemetry.recorder.mode = "features" in the settings begins it)'


class _Plan(RequestBody, frozen=True, kw_only=True):
    document: Text
    replay: bool = True


_Place = Annotated[str, Meta(min_length=1, max_length=256)]


class _Value(RequestBody, frozen=True, kw_only=True):
    path: _Place
    value: str | int | float | bool | list[Any] | dict[str, Any] | None


class _Edit(RequestBody, frozen=True, kw_only=True):
    document: Text | None = None
    set: Annotated[tuple[_Value, ...], Meta(max_length=_MAX_EDITS)] = ()
    remove: Annotated[tuple[_Place, ...], Meta(max_length=_MAX_EDITS)] = ()


class PlanHandlers:
    """`POST /admin/api/policy/plan` and `/edit`."""

    def __init__(
        self, source: PolicySource, policies: PolicyHandlers, config: GatewayConfig, tape: Tape | None
    ) -> None:
        """Set up the handlers; `tape` is this process's recording."""
        self._tape = tape
        self._config = config
        self._turn = asyncio.Lock()
        self._source = source
        self._policies = policies

    @serves(f"{PATH}/plan", "POST", role=Role.VIEWER, max_bytes=MAX_DOCUMENT_SUBMISSION_BYTES)
    async def plan(self, request: AdminRequest) -> Response:
        """Plan a document: its changes, their blast radius, a replay, and what holds for all requests."""
        form = request.fill(_Plan)
        found = await asyncio.to_thread(self._source.reader.examine, form.document)
        body: dict[str, Any] = {
            "ok": not found.problems,
            "problems": found.problems,
            "changes": [],
            "blast_radius": None,
            "replay": None,
            "replay_why_not": "the policy is no good",
            "proof": await self._policies.proof(found),
        }
        if found.policy is not None and not found.problems:
            body |= await self._preview_of(form.document, found.policy, replay=form.replay)
        return ApiResponse(body)

    @serves(f"{PATH}/edit", "POST", role=Role.VIEWER, max_bytes=MAX_DOCUMENT_SUBMISSION_BYTES)
    async def edit(self, request: AdminRequest) -> Response:
        """Return the text with some values set and others removed; nothing is applied.

        The text may be a bad policy, before and after: an editor corrects one mistake at a time. Such a text has no
        list of changes.
        """
        form = request.fill(_Edit)
        if not form.set and not form.remove:
            raise InvalidRequest("Name at least one value in set or remove.", param="set")
        before = form.document or self._source.head.document
        try:
            document = await asyncio.to_thread(_edited, before, form)
        except EditError as error:
            raise InvalidRequest(f"{error}.", param="set") from None
        except PolicyError as error:
            raise BadPolicy(error.problems) from None
        try:
            changes = await self._policies.changes(before, document)
        except BadPolicy:
            changes = ()
        return ApiResponse({"document": document, "changes": [change.as_json() for change in changes]})

    async def _preview_of(self, document: str, new: Policy, *, replay: bool) -> dict[str, Any]:
        old = self._source.policy
        changes = diff(old, new)
        return {
            "changes": [change.as_json() for change in changes],
            "blast_radius": await self._policies.blast(changes, old, new),
            **(await self._replayed(document) if replay else {"replay_why_not": "not asked for"}),
        }

    async def _replayed(self, document: str) -> dict[str, Any]:
        """Replay the recording, one replay at a time: each takes a core for up to a minute."""
        folder = self._config.process.recording_dir
        if self._tape is not None:
            await asyncio.to_thread(self._tape.flush)
        if not await asyncio.to_thread(has_recording, folder):
            return {"replay_why_not": _NOTHING_RECORDED}
        question = ReplayRequest(
            old=self._source.head.document,
            new=document,
            variables=self._config.process.policy_variables,
            folder=str(folder),
        )
        try:
            async with self._turn:
                return {"replay": await replay(question), "replay_why_not": None}
        except ReplayFailed as error:
            return {"replay_why_not": f"the replay failed: {error}"}


def _edited(document: str, form: _Edit) -> str:
    """Make the edits; later items of a list are removed first, since the others keep their places then."""
    for item in form.set:
        document = set_value(document, parse_path(item.path), item.value)
    for path in sorted(map(parse_path, form.remove), key=_place, reverse=True):
        document = remove_value(document, path)
    return document


def _place(path: Path) -> list[tuple[int, str]]:
    return [(part, "") if isinstance(part, int) else (-1, part) for part in path]
