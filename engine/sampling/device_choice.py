"""Choice of tokens on the device without synchronization, for sequences that need no state on the host."""

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
    """Token chooser; a row's token depends only on its own logits, key and temperature."""

    def choose(
        self, logits: torch.Tensor, keys: Sequence[int], temperatures: Sequence[float]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose a token for each row on the device; at temperature 0 the largest logit, lowest id among equals.

        Args:
            logits: float32 [N, vocab].
            keys: Result of `stream_key` for each row.
            temperatures: Temperature of each row.

        Returns:
            Token ids int64 [N], and bool [N]: True where the logits have a NaN or no finite number.
        """
        ...


class TorchChooser:
    """Token chooser of torch operations; on a CPU its tokens equal the sampler's to the last bit."""

    def choose(
        self, logits: torch.Tensor, keys: Sequence[int], temperatures: Sequence[float]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose a token for each row: ids int64 [N], and bool [N] where no choice is possible."""
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
    """Chosen tokens, still on the device."""

    token_ids: torch.Tensor
    """int64 [N]."""
    is_invalid: torch.Tensor
    """bool [N]: True where no choice is possible; the token is meaningless."""
    is_open: torch.Tensor | None = None
    """bool [N]: True where truncation may keep more tokens than were examined, so the sampler decides. None: nowhere.
    """


def needs_no_host(params: SamplingParams) -> bool:
    """Return whether the choice needs only logits, temperature, truncation and seed: no token counts, no logprobs."""
    return not (has_penalties(params) or params.logit_bias or params.min_tokens or params.num_top_logprobs is not None)


def choose_on_device(
    chooser: TokenChooser, logits: torch.Tensor, params: Sequence[SamplingParams], keys: Sequence[int]
) -> DeviceChoice:
    """Choose a token for each row of logits float32 [N, vocab] without synchronization; `params` must need no host."""
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
    """Sample token ids int64 [N] among those that survive truncation, and bool [N]: True where more might."""
    heat = to_device([p.temperature for p in params], logits.dtype, logits.device)
    tempered = (logits - logits.amax(-1, keepdim=True)).div_(heat.unsqueeze(1))
    values, token_ids, is_open = likely_survivors(tempered, params)
    race = values - exponential_noise(keys, token_ids).log_()
    return token_ids.gather(1, race.argmax(-1, keepdim=True)).flatten(), is_open
