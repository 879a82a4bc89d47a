"""A runner whose steps can be launched one behind the other: each reads its tokens where the last one leaves them."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import KVCache
from engine.models.decoder import Model
from engine.runner.flight import LaunchedStep, UndecidedError
from engine.runner.runner import ModelRunner
from engine.sampling.device_choice import DeviceChoice, TokenChooser, choose_on_device, needs_no_host
from engine.sampling.noise import stream_key
from engine.sampling.sampler import Sampler
from engine.spec_decode.verifier import accept
from engine.step.sample_rows import SampleRows
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import Sequence
from engine.step.step_output import StepOutput

_UNKNOWN = (0,)
"""Stands for a token that is still being computed."""


@dataclass(frozen=True, slots=True)
class ModelFlight:
    """A launched step; its tokens are on the device, and on their way to the host."""

    scheduled: SchedulerOutput
    token_ids: torch.Tensor
    """int64 [num_seqs], on the device."""
    arriving: torch.Tensor
    """int64 [3, num_seqs] in the host's memory: tokens, 1 where invalid, 1 where undecided."""
    arrived: torch.cuda.Event | None
    """Event at the end of the copy to the host; None if the copy is complete."""
    undecided: WeakSet[Sequence]
    """Set to which sequences are added if their token could not be chosen on the device."""

    def result(self) -> StepOutput:
        """Wait for the copy of what was computed. Raises UndecidedError."""
        if self.arrived is not None:
            self.arrived.synchronize()
        token_ids, is_invalid, is_open = self.arriving.tolist()
        if any(is_open):
            self.undecided.update(chunk.seq for chunk, bad in zip(self.scheduled.chunks, is_open, strict=True) if bad)
            raise UndecidedError("more tokens may survive truncation than were looked at")
        return StepOutput(
            [
                accept((), (token_id,), (None,), (bool(bad),))
                for token_id, bad in zip(token_ids, is_invalid, strict=True)
            ]
        )


class OverlapRunner(ModelRunner):
    """Runner that launches a batch without waiting if none of its sequences needs the host to choose a token."""

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        caches: list[KVCache],
        *,
        chooser: TokenChooser,
        sample_rows: SampleRows,
        device: torch.device,
        block_size: int,
        max_tokens: int,
        max_num_seqs: int,
        max_blocks: int,
        places: npt.NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(
            model,
            sampler,
            caches,
            sample_rows=sample_rows,
            device=device,
            block_size=block_size,
            max_tokens=max_tokens,
            max_num_seqs=max_num_seqs,
            max_blocks=max_blocks,
            places=places,
        )
        self._chooser = chooser
        self._device = device
        # Once is enough: each time costs a second step.
        self._undecided: WeakSet[Sequence] = WeakSet()

    def can_launch(self, scheduled: SchedulerOutput) -> bool:
        """Return whether every sequence's token can be chosen on the device."""
        return all(
            chunk.samples
            and not chunk.draft_token_ids
            and chunk.seq.grammar is None
            and needs_no_host(chunk.seq.params)
            and chunk.seq not in self._undecided
            for chunk in scheduled.chunks
        )

    @torch.inference_mode()
    def launch(self, scheduled: SchedulerOutput, behind: LaunchedStep | None = None) -> ModelFlight:
        """Start a step of sequences that `can_launch`; `behind` is the one whose tokens are its input."""
        buffers = next(self._buffers)
        if behind is None:
            token_ids, context = buffers.fill(scheduled.chunks)
        else:
            assert isinstance(behind, ModelFlight)
            chunks = [
                ScheduledChunk(chunk.seq, chunk.start, 0, samples=True, draft_token_ids=_UNKNOWN)
                for chunk in scheduled.chunks
            ]
            _, context = buffers.fill(chunks)
            token_ids = self._tokens_of(scheduled, behind)
        hidden = self._model.forward(token_ids, context, self._caches)
        if len(scheduled.chunks) != hidden.shape[0]:
            hidden = hidden.index_select(0, buffers.indices([start - 1 for start in context.query_starts[1:]]))
        keys = [stream_key(chunk.seq.params.seed, chunk.end) for chunk in scheduled.chunks]
        params = [chunk.seq.params for chunk in scheduled.chunks]
        return self._send(scheduled, choose_on_device(self._chooser, self._model.logits(hidden), params, keys))

    def _tokens_of(self, scheduled: SchedulerOutput, behind: ModelFlight) -> torch.Tensor:
        """Return the tokens that the previous step chooses for these sequences."""
        if len(scheduled.chunks) == len(behind.scheduled.chunks):
            return behind.token_ids
        index_of = {chunk.seq.seq_id: index for index, chunk in enumerate(behind.scheduled.chunks)}
        sources = torch.tensor([index_of[chunk.seq.seq_id] for chunk in scheduled.chunks], pin_memory=self._is_cuda)
        return behind.token_ids.index_select(0, sources.to(self._device, non_blocking=True))

    def _send(self, scheduled: SchedulerOutput, choice: DeviceChoice) -> ModelFlight:
        """Start the tokens' way to the host."""
        is_open = torch.zeros_like(choice.is_invalid) if choice.is_open is None else choice.is_open
        found = torch.stack((choice.token_ids, choice.is_invalid.to(torch.int64), is_open.to(torch.int64)))
        if not self._is_cuda:
            return ModelFlight(scheduled, choice.token_ids, found, None, self._undecided)
        arriving = torch.empty(found.shape, dtype=torch.int64, pin_memory=True)
        arriving.copy_(found, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        return ModelFlight(scheduled, choice.token_ids, arriving, arrived, self._undecided)

    @property
    def _is_cuda(self) -> bool:
        return self._device.type == "cuda"
