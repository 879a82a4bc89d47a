"""ReplayBase: the recorded body at the recorded deployment, past trimming, cache and routing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Self

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.live import LiveDeployment
from gateway.replay.answer_text import AnswerText
from gateway.replay.sender import CannotReplay, ReplayedAnswer, ReplaySender
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.records.answer_record import AnswerRecord
from routing_policies.policy.members import group_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBase:
    """A record, and what the recorded deployment answers to its body now."""

    record: AnswerRecord
    source: AnswerRecord | None
    """Record of the answer that a deployment gave: the record itself, or that of the request whose response was cached.

    None where only the cached response is known.
    """
    then: AnswerText
    """Recorded answer."""
    client: ChatRequest
    """Request as the client sent it."""
    sent: ChatRequest
    """Request as a deployment got it, or would have got it."""
    live: LiveDeployment | None
    """Deployment of the source; None where the policy in force lacks it."""
    answer: ReplayedAnswer | None
    """New answer; None where there is none."""
    why_not: str = ""
    """Reason why there is none."""

    @classmethod
    async def of(
        cls,
        record: AnswerRecord,
        origin: AnswerRecord | None,
        snapshot: PolicySnapshot,
        parser: ChatRequestParser,
        sender: ReplaySender,
    ) -> Self:
        """Send the recorded body. Raises InvalidRequest or ValueError for a record that holds none."""
        source = origin if record.is_cached else record
        client = await asyncio.to_thread(parser.parse, record.request.encode())
        sent = await asyncio.to_thread(parser.parse, record.sent.encode())
        live = None if source is None else _deployment(snapshot, source.deployment)
        answer, why_not = None, ""
        if source is None:
            why_not = f"the request that made the cached response, {record.cache_entry or 'unknown'}, is not recorded"
        elif live is None:
            why_not = f"the policy in force has no deployment '{source.deployment}'"
        else:
            body = sent if source is record else await asyncio.to_thread(parser.parse, source.sent.encode())
            try:
                answer = await sender.send(snapshot, live, body, source.adapter or None)
            except CannotReplay as error:
                why_not = str(error)
        return cls(
            record=record,
            source=source,
            then=AnswerText.of(record.answer.encode()),
            client=client,
            sent=sent,
            live=live,
            answer=answer,
            why_not=why_not,
        )

    @property
    def is_repeatable(self) -> bool:
        """Return whether the same model gives the same answer again."""
        return self.source is None or self.source.is_repeatable

    @property
    def has_same_text(self) -> bool:
        """Return whether the recorded deployment gives the recorded text."""
        return self.answer is not None and self.answer.text == self.then


def _deployment(snapshot: PolicySnapshot, name: str) -> LiveDeployment | None:
    """Return the deployment, or another member of its group: they have the same model."""
    found = snapshot.deployments.get(name)
    if found is not None:
        return found
    members = (live for live in snapshot.deployments.values() if live.group == group_of(name))
    return next((live for live in members if live.is_ready), None)
