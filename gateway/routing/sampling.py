"""Sample of a request, recorded for simulation, and the draft of its answer's record, while the request is served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.cache.exact.fingerprint import fingerprint
from gateway.chat.headers import ChatHead
from gateway.chat.json_members import encoded
from gateway.chat.request import ChatRequest
from gateway.errors import InvalidRequest
from gateway.routing.facts import RequestFacts
from gateway.routing.prompt_of import prompt_of
from gateway.telemetry.logs.redaction import is_secret_name
from gateway.telemetry.records.answer_record import AnswerRecording
from gateway.telemetry.records.tape import Tape
from routing_policies.quality.model import Prediction
from routing_policies.quality.pairs import QualityPrediction
from routing_policies.quality.predictor import Predictors
from routing_policies.replay import pair_key

_FACTS = ("turns", "prompt_bytes", "has_tools", "has_images")


class RecordingSampler:
    """Sampler beside the pipeline, where the settings request a recording."""

    def __init__(self, tape: Tape, predictors: Predictors, draw_seed: Callable[[], int] | None = None) -> None:
        """Create a sampler.

        Args:
            tape: The recording.
            predictors: Predictors of quality; what they predict is recorded for policies that would use them.
            draw_seed: Source of seeds for sampled answers; None where answers are not recorded.
        """
        self._tape = tape
        self._predictors = predictors
        self._draw_seed = draw_seed

    def draft(self, request: ChatRequest, head: ChatHead, header_names: tuple[str, ...]) -> AnswerRecording | None:
        """Begin the record of an answer; headers with credentials are left out, whichever routes match them.

        None for a request of another API that cannot be written as one of chat completions.
        """
        try:
            body = plain_body(request)
        except InvalidRequest:
            return None
        headers = head.all() if header_names else {}
        matched = {name: headers[name] for name in header_names if name in headers and not is_secret_name(name)}
        draft = AnswerRecording(body, matched)
        draft.is_greedy = request.fields.temperature == 0
        draft.seed = request.fields.seed
        return draft

    def seeded(self, draft: AnswerRecording, request: ChatRequest) -> ChatRequest:
        """Return the request with a seed, so that a sampled answer can be given again; the client's seed counts."""
        if draft.is_greedy or draft.seed is not None or self._draw_seed is None:
            return request
        draft.seed = self._draw_seed()
        return request.with_seed(draft.seed)

    def sample(
        self, request: ChatRequest, head: ChatHead, header_names: tuple[str, ...], tenant: str
    ) -> dict[str, Any] | None:
        """Return features and digests; None for a request without a possible digest."""
        found = fingerprint(request, scope=self._tape.salt, candidates=b"")
        if found is None:
            return None
        facts = RequestFacts(request)
        sample: dict[str, Any] = {name: facts.fact(name) for name in _FACTS}
        sample["question"] = found.exact.hex()
        sample["user"] = self._tape.digest(request.fields.user)
        prompt = prompt_of(request, tenant) if len(self._predictors) else None
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


def plain_body(request: ChatRequest) -> bytes:
    """Return the body as one of chat completions; raises InvalidRequest where it needs members of another API."""
    return request.raw if request.projection is None else encoded(request.projection.plain(request.document))


def note_verdict(sample: dict[str, Any], verdict: QualityPrediction) -> None:
    """Record the quality predicted for the request's own route, which overrides earlier entries.

    That prediction used the route's embedding, and the prompt that trimming left.
    """
    for pair_predictor, assessed in verdict.assessed:
        sample["probabilities"][pair_key(*pair_predictor.predictor.pair)] = _probability(assessed.prediction)


def _probability(prediction: Prediction) -> float | None:
    return round(prediction.probability, 4) if prediction.is_known else None
