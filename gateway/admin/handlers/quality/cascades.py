"""Thresholds of cascades at the admin API: what is in force, since when, from how many labels; and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.access.identity import Role
from gateway.admin.api.fields import RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.background.cascade_calibrator import CalibrationRestart, CascadeCalibrator
from gateway.background.label_store import LabelJournal
from gateway.errors import NotFound
from routing_policies.quality.thresholds import CascadeThreshold
from routing_policies.quality.training.label import Pair

CASCADES_PATH: Final = "/admin/api/routing/cascades"

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class TakeBack(RequestBody, frozen=True, kw_only=True):
    """The pair whose thresholds are taken back."""

    weak: _Name
    strong: _Name


class CascadeHandlers:
    """`/admin/api/routing/cascades` and the path below it."""

    def __init__(
        self, calibrator: CascadeCalibrator, labels: LabelJournal, audit: AuditLog, *, wall: Callable[[], float]
    ) -> None:
        """Set up the handlers; `audit` is the log of admins' actions."""
        self._calibrator = calibrator
        self._labels = labels
        self._audit = audit
        self._wall = wall

    @serves(CASCADES_PATH)
    async def show(self, request: AdminRequest) -> Response:
        """Show the confidence from which a small model's answer goes on, for each pair and stated quality."""
        return ApiResponse({"cascades": self._shown()})

    @serves(f"{CASCADES_PATH}/take-back", "POST", role=Role.EDITOR)
    async def take_back(self, request: AdminRequest) -> Response:
        """Put the defaults of a pair in force; only labels that come from now on may change them again.

        Raises NotFound.
        """
        order = request.fill(TakeBack)
        pair = order.weak, order.strong
        before = {min_quality: found for known, min_quality, found in self._calibrator.in_force() if known == pair}
        if not before:
            raise NotFound(f"No route has a cascade of these models. GET {CASCADES_PATH} lists those that there are.")
        detail = {f"{min_quality:g}": round(found.confidence, 4) for min_quality, found in before.items()}
        await self._audit.record(request.who, "cascade.take_back", "/".join(pair), detail=detail)
        self._labels.restart(CalibrationRestart(weak=order.weak, strong=order.strong, at=self._wall()))
        return ApiResponse({"cascades": [shown for shown in self._shown() if (shown["weak"], shown["strong"]) == pair]})

    def _shown(self) -> list[dict[str, Any]]:
        return [self._shown_one(*found) for found in self._calibrator.in_force()]

    def _shown_one(self, pair: Pair, min_quality: float, found: CascadeThreshold) -> dict[str, Any]:
        return {
            "weak": pair[0],
            "strong": pair[1],
            "min_quality": min_quality,
            "state": found.state,
            "confidence": found.confidence,
            "since": found.since or None,
            "num_labels": found.num_labels,
            "num_above": found.num_above,
            "good_ratio": found.num_good / found.num_above if found.num_above else None,
            "good_ratio_low": found.share_low if found.num_above else None,
            "taken_back_at": self._calibrator.restarted_at(pair),
        }
