"""Choosing tokens without waiting for the device, for rows whose choice depends on nothing that the host must count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.protocol import SamplingParams
from engine.sampling.noise import exponential_noise
from engine.sampling.penalties import has_penalties
from engine.sampling.transfer import to_device
from engine.sampling.truncation import has_truncation, likely_survivors


class TokenChooser(Protocol):
    """Chooses one token for each row; a row's token depends on nothing but its own logits, key and temperature."""

    def choose(
        self, logits: torch.Tensor, keys: Sequence[int], temperatures: Sequence[float]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids int64 [N] and whether they mean nothing bool [N], of logits float32 [N, vocab], on their device.

        `keys` are of `stream_key`; at temperature 0 the largest logit wins, the lowest id among equals.
        """
        ...


class TorchChooser:
    """By torch operations, the sampler's own: on a CPU the same tokens to the last bit."""

    def choose(
        self, logits: torch.Tensor, keys: Sequence[int], temperatures: Sequence[float]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids int64 [N] and whether they mean nothing bool [N]."""
        largest, token_ids = logits.max(-1)
        is_invalid = largest.isnan() | (largest == float("-inf"))
        if any(temperatures):
            heat = torch.tensor(temperatures, dtype=logits.dtype, device=logits.device)
            is_drawn = heat > 0
            heat = torch.where(is_drawn, heat, torch.ones_like(heat))
            tempered = (logits - largest.unsqueeze(1)).div_(heat.unsqueeze(1))
            everything = torch.arange(logits.shape[1], device=logits.device).expand(len(keys), -1)
            race = tempered - exponential_noise(keys, everything).log_()
            token_ids = torch.where(is_drawn, race.argmax(-1), token_ids)
        return token_ids, is_invalid


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """What was chosen, still on the device."""

    token_ids: torch.Tensor
    """int64 [N]."""
    is_invalid: torch.Tensor
    """bool [N]: the row has no choice; its token means nothing."""
    is_open: torch.Tensor | None = None
    """bool [N]: more tokens may survive truncation than were looked at; only the sampler can tell. None: nowhere."""


def needs_no_host(params: SamplingParams) -> bool:
    """Whether a choice depends on logits, heat, truncation and seed alone: nothing counts tokens or asks for more."""
    return not (has_penalties(params) or params.logit_bias or params.min_tokens or params.num_top_logprobs is not None)


def choose_on_device(
    chooser: TokenChooser, logits: torch.Tensor, params: Sequence[SamplingParams], keys: Sequence[int]
) -> DeviceChoice:
    """One token for each row of logits float32 [N, vocab], for parameters that need no host; waits for nothing."""
    token_ids, is_invalid = chooser.choose(logits, keys, [p.temperature for p in params])
    cut = [n for n, p in enumerate(params) if p.temperature > 0 and has_truncation(p)]
    if not cut:
        return DeviceChoice(token_ids, is_invalid)
    rows = to_device(cut, torch.int64, logits.device)
    chosen, is_open = _race_of_survivors(logits.index_select(0, rows), [params[n] for n in cut], [keys[n] for n in cut])
    of_all = torch.zeros_like(is_invalid).index_copy_(0, rows, is_open)
    return DeviceChoice(token_ids.index_copy(0, rows, chosen), is_invalid, of_all)


def _race_of_survivors(
    logits: torch.Tensor, params: Sequence[SamplingParams], keys: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids int64 [N] among those that survive truncation, and whether more may do so than were looked at."""
    heat = to_device([p.temperature for p in params], logits.dtype, logits.device)
    tempered = (logits - logits.amax(-1, keepdim=True)).div_(heat.unsqueeze(1))
    values, token_ids, is_open = likely_survivors(tempered, params)
    race = values - exponential_noise(keys, token_ids).log_()
    return token_ids.gather(1, race.argmax(-1, keepdim=True)).flatten(), is_open
