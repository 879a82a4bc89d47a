"""Labels from audits, shadows and feedback at the admin API: their counts, and an export for training."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
from starlette.responses import Response

from gateway.access.identity import Role
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.background.quality_learner import Learner
from routing_policies.quality.training.label import Label, Pair

PATH: Final = "/admin/api/routing/labels"
PAGE: Final = 200


class LabelHandlers:
    """`GET /admin/api/routing/labels` and, for editors, `/admin/api/routing/labels/export`."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    @serves(PATH)
    async def count(self, request: AdminRequest) -> Response:
        """Count the labels of each pair, and show which pairs have a trained predictor."""
        pairs = [self._described(pair, [label for _, label in found]) for pair, found in self._learner.labels().items()]
        return ApiResponse({"pairs": pairs})

    @serves(f"{PATH}/export", role=Role.EDITOR)
    async def export(self, request: AdminRequest) -> Response:
        """Export a page of a pair's labels, oldest first; `next` is the `after` of the following page.

        A label has figures, hashes and a vector, but not its tenant.
        """
        pair, after = (request.text("weak") or "", request.text("strong") or ""), request.text("after") or ""
        rest = [(key, label) for key, label in self._learner.labels().get(pair, []) if key > after]
        page = rest[:PAGE]
        following = page[-1][0] if len(rest) > PAGE else None
        return ApiResponse({"labels": [_exported(label) for _, label in page], "next": following})

    def _described(self, pair: Pair, labels: list[Label]) -> dict[str, Any]:
        predictor = self._learner.predictor(pair)
        return {
            "weak": pair[0],
            "strong": pair[1],
            "num_labels": len(labels),
            "num_good": sum(label.lost < 0.5 for label in labels),
            "sources": Counter(label.source for label in labels),
            "oldest_at": labels[0].at,
            "newest_at": labels[-1].at,
            "is_learned": predictor is not None and predictor.model is not predictor.base,
            "trained_on": None if predictor is None else predictor.model.trained_on,
        }


def _exported(label: Label) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(label).items() if name != "tenant"}
