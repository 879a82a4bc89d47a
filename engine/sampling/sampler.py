"""Sampler: the next token of every row from its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.protocol import SamplingParams, TokenLogprobs
from engine.sampling.device_choice import TokenChooser
from engine.sampling.logprobs import token_logprobs
from engine.sampling.noise import exponential_noise, stream_key
from engine.sampling.penalties import PenaltyState, has_penalties
from engine.sampling.truncation import has_truncation, surviving_tokens

_FORBIDDEN = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """Input for the choice of one token."""

    params: SamplingParams
    position: int
    """Absolute position of the chosen token; with the seed it determines the random numbers."""
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    """Accepted output before this row's draft tokens."""
    draft_token_ids: Sequence[int] = ()
    """Draft tokens assumed between the output and this position."""
    penalties: PenaltyState | None = None
    """The sequence's penalty state; None: counts are rebuilt for every token."""
    allowed: torch.Tensor | None = None
    """bool [vocab]: tokens that may be chosen (a grammar's mask); None: all."""

    @property
    def num_output(self) -> int:
        """Number of output tokens before this one, draft tokens included."""
        return len(self.output_token_ids) + len(self.draft_token_ids)


@dataclass(frozen=True, slots=True)
class SampleResult:
    """Chosen tokens by row."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs | None]
    """Log probabilities of each row; None where the row requests none."""
    invalid_rows: tuple[int, ...] = ()
    """Rows without a choice: their logits hold NaN or no token is allowed. Their token id is meaningless."""


class Sampler:
    """Stateless sampler; a row's token depends on its logits, parameters and position, never on the other rows.

    Order: logit bias, penalties, min_tokens or the allowed mask (which also decides where an answer may end), then
    temperature, top-k, top-p, min-p. Log probabilities are the model's own, before all of these. At temperature 0 the
    largest logit is chosen, the lowest id among equals. Otherwise each token draws an exponential number with its
    probability as the rate and the smallest one is chosen (the Gumbel-max trick).
    """

    def __init__(self, chooser: TokenChooser | None = None) -> None:
        """Create the sampler; `chooser` samples rows without truncation (None: torch operations)."""
        self._chooser = chooser

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, rows: Sequence[SampleRow]) -> SampleResult:
        """Choose a token for each row of logits float32 [N, vocab], which stay unchanged."""
        adjusted = _adjust(logits, rows)
        largest, choices = adjusted.max(-1)
        token_ids: list[int] = choices.tolist()
        is_invalid = largest.isnan() | (largest == _FORBIDDEN)
        invalid_rows = tuple(is_invalid.nonzero().flatten().tolist()) if bool(is_invalid.any()) else ()
        drawn = [n for n, row in enumerate(rows) if row.params.temperature > 0.0 and n not in invalid_rows]
        cut = [n for n in drawn if has_truncation(rows[n].params)]
        uncut = [n for n in drawn if not has_truncation(rows[n].params)]
        for some, draw in ((cut, _draw), (uncut, self._race if self._chooser else _draw)):
            for n, token_id in zip(some, draw(adjusted, largest, rows, some) if some else (), strict=True):
                token_ids[n] = token_id
        return SampleResult(token_ids, _logprobs(logits, rows, token_ids), invalid_rows)

    def _race(
        self, logits: torch.Tensor, largest: torch.Tensor, rows: Sequence[SampleRow], drawn: Sequence[int]
    ) -> list[int]:
        """Sample token ids for rows without truncation."""
        assert self._chooser is not None
        if len(drawn) < len(rows):
            logits = logits.index_select(0, torch.tensor(drawn, device=logits.device))
        keys = [stream_key(rows[n].params.seed, rows[n].position) for n in drawn]
        chosen, _ = self._chooser.choose(logits, keys, [rows[n].params.temperature for n in drawn])
        token_ids: list[int] = chosen.tolist()
        return token_ids


def _adjust(logits: torch.Tensor, rows: Sequence[SampleRow]) -> torch.Tensor:
    """Return the logits, or a copy with the changed rows adjusted."""
    changing = [n for n, row in enumerate(rows) if _changes_logits(row)]
    if not changing:
        return logits
    adjusted = logits.clone()
    for n in changing:
        _adjust_row(adjusted[n], rows[n])
    return adjusted


def _changes_logits(row: SampleRow) -> bool:
    params = row.params
    return (
        bool(params.logit_bias)
        or has_penalties(params)
        or (row.num_output < params.min_tokens and bool(params.stop_token_ids))
        or row.allowed is not None
    )


def _adjust_row(logits: torch.Tensor, row: SampleRow) -> None:
    params, device = row.params, logits.device
    if params.logit_bias:
        ids = torch.tensor(list(params.logit_bias), device=device)
        logits.index_add_(0, ids, torch.tensor(list(params.logit_bias.values()), dtype=logits.dtype, device=device))
    penalties = row.penalties or PenaltyState.create(params, row.prompt_token_ids, device)
    if penalties is not None:
        penalties.penalise(logits, row.output_token_ids, row.draft_token_ids)
    # With a grammar, only the grammar decides where an answer may end.
    if row.num_output < params.min_tokens and params.stop_token_ids and row.allowed is None:
        logits.index_fill_(0, torch.tensor(params.stop_token_ids, device=device), _FORBIDDEN)
    if row.allowed is not None:
        logits.masked_fill_(~row.allowed, _FORBIDDEN)


def _draw(logits: torch.Tensor, largest: torch.Tensor, rows: Sequence[SampleRow], drawn: Sequence[int]) -> list[int]:
    """Sample token ids for rows that either all have truncation or all have none."""
    if len(drawn) < len(rows):
        indices = torch.tensor(drawn, device=logits.device)
        logits, largest = logits.index_select(0, indices), largest.index_select(0, indices)
    params = [rows[n].params for n in drawn]
    keys = [stream_key(rows[n].params.seed, rows[n].position) for n in drawn]
    temperatures = torch.tensor([p.temperature for p in params], dtype=logits.dtype, device=logits.device)
    # Differences to the largest logit: a tiny temperature turns the others into -inf but never into NaN.
    tempered = (logits - largest.unsqueeze(1)).div_(temperatures.unsqueeze(1))
    if has_truncation(params[0]):
        tempered, token_ids = surviving_tokens(tempered, params)
    else:
        token_ids = torch.arange(logits.shape[1], device=logits.device).expand(len(drawn), -1)
    race = tempered - exponential_noise(keys, token_ids).log_()
    chosen: list[int] = token_ids.gather(1, race.argmax(-1, keepdim=True)).flatten().tolist()
    return chosen


def _logprobs(logits: torch.Tensor, rows: Sequence[SampleRow], token_ids: Sequence[int]) -> list[TokenLogprobs | None]:
    logprobs: list[TokenLogprobs | None] = [None] * len(rows)
    requested = [(n, count) for n, row in enumerate(rows) if (count := row.params.num_top_logprobs) is not None]
    if requested:
        indices = [n for n, _ in requested]
        of_rows = logits.index_select(0, torch.tensor(indices, device=logits.device))
        found = token_logprobs(of_rows, [token_ids[n] for n in indices], [count for _, count in requested])
        for n, row_logprobs in zip(indices, found, strict=True):
            logprobs[n] = row_logprobs
    return logprobs
