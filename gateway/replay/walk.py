"""Walk: from how a recorded request was answered to how it would be answered now, one factor at a time.

    recorded body ─ trimming ─ cache ─ routing ─ policy ─▶ how the request would be answered now ─ prompt
    recorded body at the recorded deployment ─ quantization, model, engine, chat template

Each change of the first line is kept for the next factor, and its text compared with the one before. The second line is
one measurement: only the deployment itself can change that text, and what it states then names the factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.cache.cache_stage import CacheStage
from gateway.cache.exact.cache_lookup import CacheLookup
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.live import LiveDeployment
from gateway.deployments.price import Pricer
from gateway.errors import GatewayError
from gateway.replay.answer_text import AnswerText, Difference
from gateway.replay.base import ReplayBase
from gateway.replay.choice import choice_now
from gateway.replay.engine_factors import engine_factors
from gateway.replay.prompt import are_alike, with_prompt
from gateway.replay.report import Factor, FactorReport, FactorVerdict
from gateway.replay.sender import CannotReplay, ReplaySender
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.records.answer_record import AnswerRecord
from gateway.trimming.trim_stage import TrimStage
from routing_policies.policy.members import group_of, is_member

_BY_CLIENT: Final = frozenset({"no_store", "no_cache", "regenerate"})
"""Reasons for which a client's own request passed the cache by, whatever the cache holds."""
_NO_ROUTE: Final = "the policy in force has no such route: see policy"
_CACHED: Final = "the cache answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTools:
    """What replays use of the gateway."""

    sender: ReplaySender
    parser: ChatRequestParser
    trims: TrimStage
    cache: CacheStage
    pricer: Pricer
    policy: Callable[[], PolicySnapshot]


class Walk:
    """One walk; `factors` has what was found."""

    def __init__(self, tools: ReplayTools, snapshot: PolicySnapshot, base: ReplayBase) -> None:
        self._tools = tools
        self._snapshot = snapshot
        self._base = base
        self._record = base.record
        source = base.source or base.record
        self._live = base.live
        self._adapter = source.adapter or None
        self._seed = source.seed
        self._request = self._seeded(base.sent)
        """Request as a deployment gets it at this point of the walk."""
        self._text: AnswerText = base.then if base.answer is None or base.record.is_cached else base.answer.text
        """Text at this point of the walk."""
        self._hit: CacheLookup | None = None
        """Cached response that is served at this point of the walk."""
        self._answers: dict[tuple[str, str | None, bytes], AnswerText] = {}
        if base.answer is not None and base.live is not None and not base.record.is_cached:
            self._answers[base.live.id, self._adapter, base.sent.raw] = base.answer.text
        self.factors: list[FactorReport] = []

    async def run(self, prompt: str | None) -> None:
        """Walk over all factors. Raises InvalidRequest for a prompt that is none."""
        planned = self._recorded_route()
        if planned is None:
            for factor in ("trimming", "cache", "routing"):
                self._add(factor, "", "", "unknown", _NO_ROUTE)
        else:
            unseeded = await self._trimmed(planned)
            await self._trimming(unseeded)
            await self._cache(planned, unseeded)
            await self._routing(planned)
        await self._policy(planned)
        self.factors += engine_factors(self._base)
        await self._prompt(prompt)

    def _recorded_route(self) -> PlannedRoute | None:
        """Return the recorded route in the policy in force; None where it is gone."""
        matched = self._matched()
        if isinstance(matched, PlannedRoute) and matched.route.id == self._record.route:
            return matched
        return self._snapshot.router.planned_of(self._record.route, self._record.adapter or None)

    def _matched(self) -> PlannedRoute | str:
        """Return the route that the policy in force gives the request, or why it refuses it."""
        record = self._record
        if self._snapshot.keys.caller_of(record.tenant) is None:
            return f"the policy in force has no tenant '{record.tenant}'"
        try:
            return self._snapshot.router.match(record.model, record.tenant, record.headers, self._base.client)
        except GatewayError as error:
            return error.message

    async def _trimmed(self, planned: PlannedRoute) -> ChatRequest:
        """Return the client's request as a route trims it now, without a seed of the gateway's."""
        rule = planned.route.trim
        if self._record.keeps_whole and rule.client_may_turn_off:
            return self._base.client
        return await self._tools.trims.replayed(self._base.client, rule, self._record.tenant)

    def _seeded(self, request: ChatRequest) -> ChatRequest:
        is_open = self._seed is not None and request.fields.seed is None
        return request.with_seed(self._seed) if is_open and self._seed is not None else request

    async def _trimming(self, unseeded: ChatRequest) -> None:
        record, request = self._record, self._seeded(unseeded)
        then = ", ".join([*(f"{name} cut {num} tokens" for name, num in record.trimmed.items()), *record.degraded])
        if are_alike(request, self._request):
            self._add("trimming", then or "nothing cut", then or "nothing cut", "same")
            return
        size = f"{self._request.text_bytes} bytes of prompt", f"{request.text_bytes} bytes of prompt"
        then = f"{then or 'nothing cut'}: {size[0]}"
        self._request = request
        if record.is_cached:
            self._add("trimming", then, size[1], "no_effect", "the recorded answer came from the cache")
        else:
            await self._step("trimming", then, size[1])

    async def _cache(self, planned: PlannedRoute, unseeded: ChatRequest) -> None:
        record = self._record
        then = f"{record.cache} ({record.cache_reason})"
        if record.is_cached:
            then += f" of {record.cache_entry or 'another request'}, {record.cache_age_s:.0f} s old"
        elif record.cache_reason in _BY_CLIENT:
            self._add("cache", then, then, "same", "the client's own request passed the cache by")
            return
        found = await self._tools.cache.peek(unseeded, planned, record.tenant)
        now = f"{found.result} ({found.reason})"
        if found.answer is None:
            if not record.is_cached:
                self._add("cache", then, now, "same")
                return
            await self._uncached(planned, then, now)
            return
        now += f" of {found.entry_id}, {found.age_s:.0f} s old"
        self._hit = found
        self._compare("cache", then, now, AnswerText.of(found.answer), is_same=found.entry_id == record.cache_entry)

    async def _uncached(self, planned: PlannedRoute, then: str, now: str) -> None:
        """Compare the recorded cached response with a deployment's own answer."""
        if self._base.source is None and self._request.fields.temperature != 0 and self._request.fields.seed is None:
            why = "the request that made the cached response is not recorded, and its answers are sampled"
            self._add("cache", then, now, "unknown", why)
            return
        self._live = self._live or self._chosen(planned, self._request)
        await self._step("cache", then, now)

    async def _routing(self, planned: PlannedRoute) -> None:
        chosen = self._chosen(planned, self._request)
        source = self._base.source
        then = "the cache" if source is None else source.deployment
        if chosen is None:
            self._add("routing", then, "", "unknown", "no candidate of the route is ready")
            return
        is_same = source is None or group_of(chosen.id) == group_of(source.deployment)
        if not is_same and self._may_cascade(planned, source):
            self._add("routing", then, then, "same", "a candidate of a cascade, which decides during each answer")
            return
        self._live = (self._live or chosen) if is_same else chosen
        if is_same:
            self._add("routing", then, chosen.id, "same")
        elif self._hit is not None:
            self._add("routing", then, chosen.id, "no_effect", _CACHED)
        else:
            await self._step("routing", then, chosen.id)

    def _may_cascade(self, planned: PlannedRoute, source: AnswerRecord | None) -> bool:
        names = [group_of(name) for name in planned.deployment_ids]
        return planned.route.select.policy == "cascade" and source is not None and group_of(source.deployment) in names

    async def _policy(self, planned: PlannedRoute | None) -> None:
        record, now = self._record, self._snapshot.revision
        then = record.policy
        if now == then:
            self._add("policy", then, now, "same")
            return
        if self._takes_other_server():
            return
        matched = self._matched()
        if isinstance(matched, str):
            self._add("policy", then, now, "changes", f"it refuses the request now: {matched}")
            return
        is_as_recorded = matched.route.id == record.route and (matched.adapter or "") == record.adapter
        if planned is not None and is_as_recorded:
            self._add("policy", then, now, "no_effect", f"route '{record.route}' takes the request in both revisions")
            return
        then, now = f"{then}, route '{record.route}'", f"{now}, route '{matched.route.id}'"
        unseeded = await self._trimmed(matched)
        found = await self._tools.cache.peek(unseeded, matched, record.tenant)
        self._request, self._adapter = self._seeded(unseeded), matched.adapter
        self._live = self._chosen(matched, self._request)
        if found.answer is not None and record.cache_reason not in _BY_CLIENT:
            self._hit = found
            self._compare("policy", then, now, AnswerText.of(found.answer))
        else:
            self._hit = None
            await self._step("policy", then, now)

    def _takes_other_server(self) -> bool:
        """Report a deployment that the policy in force gives another URL or model name; return whether it does."""
        source, live, answer = self._base.source, self._base.live, self._base.answer
        if source is None or live is None or answer is None or is_member(source.deployment):
            return False
        target = f"{live.url} {live.model_with(source.adapter or None)}"
        if target == source.target:
            return False
        difference = self._base.then.difference(answer.text)
        self._add(
            "policy",
            f"{self._record.policy}, '{source.deployment}' is {source.target}",
            f"{self._snapshot.revision}, '{live.id}' is {target}",
            "changes" if difference else "no_effect",
            "the deployment has another URL or model name",
            difference,
        )
        return True

    async def _prompt(self, prompt: str | None) -> None:
        if any(one.factor == "prompt" for one in self.factors):  # the chat template has changed
            return
        if prompt is None:
            self._add("prompt", "as the client sent it", "as the client sent it", "same")
            return
        self._request, before = with_prompt(self._request, prompt), self._request
        then, now = "as the client sent it", "the prompt of --prompt"
        if are_alike(before, self._request):
            self._add("prompt", then, now, "same")
        else:
            try:
                if self._hit is not None or self._base.answer is None:
                    self._text = await self._answered(before)
            except CannotReplay as error:
                self._add("prompt", then, now, "unknown", str(error))
                return
            await self._step("prompt", then, now)

    def _chosen(self, planned: PlannedRoute, request: ChatRequest) -> LiveDeployment | None:
        """Return the deployment that a route chooses now; None where it can choose none."""
        if self._snapshot.keys.caller_of(self._record.tenant) is None:
            return None
        decision = choice_now(self._snapshot, planned, request, self._record.tenant, self._tools.pricer).decision
        return None if decision.deployment is None else self._snapshot.deployments.get(decision.deployment)

    async def _answered(self, request: ChatRequest) -> AnswerText:
        """Return the text of the deployment at this point of the walk. Raises CannotReplay."""
        if self._live is None:
            raise CannotReplay(self._base.why_not or "no deployment can answer")
        key = (self._live.id, self._adapter, request.raw)
        if key not in self._answers:
            answer = await self._tools.sender.send(self._snapshot, self._live, request, self._adapter)
            self._answers[key] = answer.text
        return self._answers[key]

    async def _step(self, factor: Factor, then: str, now: str) -> None:
        """Let the deployment answer the request as both are now, and compare."""
        try:
            after = await self._answered(self._request)
        except CannotReplay as error:
            self._add(factor, then, now, "unknown", str(error))
            return
        self._compare(factor, then, now, after)

    def _compare(self, factor: Factor, then: str, now: str, after: AnswerText, *, is_same: bool = False) -> None:
        difference = self._text.difference(after)
        self._text = after
        verdict: FactorVerdict = "changes" if difference else "same" if is_same else "no_effect"
        self._add(factor, then, now, verdict, difference=difference)

    def _add(
        self,
        factor: Factor,
        then: str,
        now: str,
        verdict: FactorVerdict,
        note: str = "",
        difference: Difference | None = None,
    ) -> None:
        self.factors.append(
            FactorReport(factor=factor, then=then, now=now, verdict=verdict, note=note, difference=difference)
        )
