"""Sample of a request, recorded for simulation while the request is served."""

from __future__ import annotations

from typing import Any

from gateway.cache.exact.fingerprint import fingerprint
from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest
from gateway.routing.facts import RequestFacts
from gateway.routing.prompt_of import prompt_of
from gateway.telemetry.records.tape import Tape
from routing_policies.quality.model import Prediction
from routing_policies.quality.pairs import QualityPrediction
from routing_policies.quality.predictor import Predictors
from routing_policies.replay import pair_key

_FACTS = ("turns", "prompt_bytes", "has_tools", "has_images")


class RecordingSampler:
    """Sampler beside the pipeline, where the settings request a recording."""

    def __init__(self, tape: Tape, predictors: Predictors) -> None:
        """Create a sampler; the predictions of `predictors` are recorded for policies that would use them."""
        self._tape = tape
        self._predictors = predictors

    def sample(self, request: ChatRequest, head: ChatHead, header_names: tuple[str, ...]) -> dict[str, Any] | None:
        """Return features and digests; None for a request without a possible digest."""
        found = fingerprint(request, scope=self._tape.salt, candidates=b"")
        if found is None:
            return None
        facts = RequestFacts(request)
        sample: dict[str, Any] = {name: facts.fact(name) for name in _FACTS}
        sample["question"] = found.exact.hex()
        sample["user"] = self._tape.digest(request.fields.user)
        prompt = prompt_of(request) if len(self._predictors) else None
        if prompt is not None:
            sample["probabilities"] = {
                pair_key(*predictor.pair): _probability(predictor.assess(prompt).prediction)
                for predictor in self._predictors
            }
        if header_names:
            headers = head.all()
            sample["headers"] = {name: headers[name] for name in header_names if name in headers}
        if self._tape.keeps_text:
            sample["text"] = facts.fact("text")
        return sample


def note_verdict(sample: dict[str, Any], verdict: QualityPrediction) -> None:
    """Record the quality predicted for the request's own route, which overrides earlier entries.

    That prediction used the route's embedding, and the prompt that trimming left.
    """
    for pair_predictor, assessed in verdict.assessed:
        sample["probabilities"][pair_key(*pair_predictor.predictor.pair)] = _probability(assessed.prediction)


def _probability(prediction: Prediction) -> float | None:
    return round(prediction.probability, 4) if prediction.is_known else None
