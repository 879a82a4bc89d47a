"""Conversion of a tenant in the policy to the limits of its quota."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.admission.quotas.lease import NANO, OnLoss, Unit
from gateway.store.meter import Meter, Period
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import TenantLimits

_NANO_PER_MTOK: Final = NANO / 1e6


class QuotaLimit(msgspec.Struct, frozen=True):
    """One limit of a tenant."""

    meter: Meter
    unit: Unit
    on_loss: OnLoss = "allow"

    @property
    def is_budget(self) -> bool:
        """Return whether the rule is a budget for a calendar period: once spent, no retry helps within it."""
        return self.meter.period is not Period.MINUTE


class QuotaRules(msgspec.Struct, frozen=True):
    """All limits of a tenant."""

    allowances: tuple[QuotaLimit, ...] = ()
    max_in_flight: int | None = None
    on_loss: OnLoss = "allow"
    """Action for `max_in_flight` when the store is lost."""


def rules_of(limits: TenantLimits) -> QuotaRules | None:
    """Return the rules, or None for a tenant without any limit."""
    allowances = []

    def limit(name: str, period: Period, unit: Unit, value: float | None, scale: int = 1, *, is_budget: bool) -> None:
        if value is not None:
            on_loss = (limits.budget.on_store_loss if is_budget else None) or limits.on_store_loss
            allowances.append(QuotaLimit(Meter(name, period, max(round(value * scale), 1)), unit, on_loss))

    budget = limits.budget
    limit("requests_per_min", Period.MINUTE, Unit.REQUEST, limits.requests_per_min, is_budget=False)
    limit("tokens_per_min", Period.MINUTE, Unit.TOKEN, limits.tokens_per_min, is_budget=False)
    limit("tokens_per_day", Period.DAY, Unit.TOKEN, budget.tokens_per_day, is_budget=True)
    limit("tokens_per_month", Period.MONTH, Unit.TOKEN, budget.tokens_per_month, is_budget=True)
    limit("cost_per_day", Period.DAY, Unit.NANO, budget.cost_per_day, NANO, is_budget=True)
    limit("cost_per_month", Period.MONTH, Unit.NANO, budget.cost_per_month, NANO, is_budget=True)
    if not allowances and limits.max_in_flight is None:
        return None
    return QuotaRules(tuple(allowances), limits.max_in_flight, limits.on_store_loss)


class Tariff:
    """Prices of tokens by deployment, in billionths of the policy's currency."""

    __slots__ = ("_dearest", "_nano")

    def __init__(self, deployments: Iterable[Deployment]) -> None:
        self._nano = {item.id: _nano_per_token(item) for item in deployments}
        self._dearest: dict[tuple[str, ...], tuple[tuple[float, float], ...]] = {}
        """Rates that can be the dearest for some request, by a route's candidates."""

    def nano(self, deployments: Iterable[str], prompt_tokens: int, completion_tokens: int) -> int:
        """Return the cost at the dearest of these deployments; one that has no price costs nothing."""
        key = deployments if isinstance(deployments, tuple) else tuple(deployments)
        rates = self._dearest.get(key)
        if rates is None:
            rates = self._dearest[key] = _undominated({self._nano.get(deployment, _FREE) for deployment in key})
        if len(rates) == 1:
            ((prompt, completion),) = rates
            return round(prompt_tokens * prompt + completion_tokens * completion)
        return round(max([prompt_tokens * prompt + completion_tokens * completion for prompt, completion in rates]))


_FREE = (0.0, 0.0)


def _undominated(rates: set[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the rates that no other exceeds in both parts; they are few, however many deployments exist."""
    retained: list[tuple[float, float]] = []
    for prompt, completion in sorted(rates, reverse=True):
        if not retained or completion > retained[-1][1]:
            retained.append((prompt, completion))
    return tuple(retained) or (_FREE,)


def _nano_per_token(item: Deployment) -> tuple[float, float]:
    price = item.cost_per_mtok
    return (0.0, 0.0) if price is None else (price.prompt * _NANO_PER_MTOK, price.completion * _NANO_PER_MTOK)
