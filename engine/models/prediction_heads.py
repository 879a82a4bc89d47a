"""Medusa heads: predict further tokens behind the next one from the model's hidden state.

Like Medusa (T. Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", 2024)
the heads share the model's vocabulary projection, and each predicts one position further. Like EAGLE (Y. Li et al.,
2024) they also read the chosen token, which the hidden state does not contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from torch.nn import functional

from engine.models.config.checkpoint import CheckpointError
from engine.models.decoder import Decoder
from engine.models.multi_step import MultiStep

FILE_NAME = "prediction_heads.safetensors"
MAX_HEADS = 4
_NAMES = ("hidden_norm", "token_norm", "gate_up", "down", "skip", "norms")


class MedusaHeads(Protocol):
    """Heads that predict further tokens behind the next one."""

    num_heads: int
    """Number of tokens predicted behind the last token."""

    def predict_logits(self, hidden: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the logits of the tokens behind `token_ids`, float32 [N, heads, vocab].

        Args:
            hidden: Final hidden states [N, hidden], from which the tokens were chosen.
            token_ids: Chosen tokens, int64 [N].
        """
        ...


class HeadPredictions(NamedTuple):
    """Tokens that heads expect behind each sequence's newest one."""

    tokens: npt.NDArray[Any]
    """Predicted tokens, int64 [num_seqs, heads]; -1 where a head makes no prediction."""
    kinds: npt.NDArray[Any]
    """int64 [num_seqs, heads]: the head, and how sure it is."""


class StepPredictions(NamedTuple):
    """Predictions made within the call that computed a step."""

    chosen: list[int]
    """Token that the model chose for each sequence after its accepted draft tokens: the most likely one."""
    predictions: HeadPredictions


@runtime_checkable
class FusedHeads(Protocol):
    """Heads that can run within the call of a step whose sequences all choose their likeliest tokens."""

    multi_step: MultiStep
    """Steps that may follow in the same call."""

    def arrange(self, num_seqs: int, stop_token_ids: Sequence[int], *, runs_heads: bool = True) -> bool:
        """Run the heads within the next step's call, if the step has `num_seqs` sequences that choose a token.

        Args:
            num_seqs: Sequences that choose a token; 0: the heads do not run.
            stop_token_ids: Tokens that end an answer; the heads do not run if every sequence chooses one.
            runs_heads: False to choose the tokens within the call without the heads, so that other steps may follow.

        Returns:
            True if the heads can run for this number of sequences.
        """
        ...

    def step_predictions(self) -> StepPredictions | None:
        """Return the predictions of the last call, once; None where the heads did not run."""
        ...


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """Weights of H heads with `width` inner numbers."""

    hidden_norm: torch.Tensor
    """[hidden]: norm of the hidden state."""
    token_norm: torch.Tensor
    """[hidden]: norm of the chosen token's embedding."""
    gate_up: torch.Tensor
    """[2 width, 2 hidden]: projection of both, side by side; SiLU of the first half times the second."""
    down: torch.Tensor
    """[H hidden, width]: projection to a state for each head, added to a share of the hidden state."""
    skip: torch.Tensor
    """[H, hidden]: shares of the hidden state."""
    norms: torch.Tensor
    """[H, hidden]: norms of the states before the vocabulary projection."""

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return self.norms.shape[0]

    def states(self, hidden: torch.Tensor, embedded: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Return each head's state [N, H, hidden] for the vocabulary projection.

        Args:
            hidden: Final hidden states [N, hidden].
            embedded: Embeddings of the chosen tokens [N, hidden].
            epsilon: Epsilon of the norms.
        """
        size = hidden.shape[1:]
        inputs = torch.cat(
            [
                functional.rms_norm(hidden, size, self.hidden_norm, epsilon),
                functional.rms_norm(embedded, size, self.token_norm, epsilon),
            ],
            -1,
        )
        gates, ups = functional.linear(inputs, self.gate_up).chunk(2, -1)
        states = functional.linear(functional.silu(gates) * ups, self.down).view(-1, self.num_heads, *size)
        return functional.rms_norm(states + self.skip * hidden.unsqueeze(1), size, None, epsilon) * self.norms


def read_heads(folder: Path, hidden_size: int, *, dtype: torch.dtype, device: torch.device) -> HeadWeights | None:
    """Read the heads in a model's folder.

    Returns:
        The weights; None if the folder has no heads.

    Raises:
        CheckpointError: The tensors do not match the model.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise CheckpointError(f"{path}: {error}; train the heads anew or remove the file") from error
    if set(found) != set(_NAMES):
        raise CheckpointError(f"{path}: expected the tensors {', '.join(_NAMES)}, got {', '.join(sorted(found))}")
    num_heads, width = found["norms"].shape[0], found["gate_up"].shape[0] // 2
    if not 1 <= num_heads <= MAX_HEADS:
        raise CheckpointError(f"{path}: expected 1 to {MAX_HEADS} heads, got {num_heads}")
    shapes = {
        "hidden_norm": (hidden_size,),
        "token_norm": (hidden_size,),
        "gate_up": (2 * width, 2 * hidden_size),
        "down": (num_heads * hidden_size, width),
        "skip": (num_heads, hidden_size),
        "norms": (num_heads, hidden_size),
    }
    for name, shape in shapes.items():
        if tuple(found[name].shape) != shape:
            raise CheckpointError(f"{path}: {name}: expected {list(shape)}, got {list(found[name].shape)}")
    return HeadWeights(**{name: tensor.to(device=device, dtype=dtype) for name, tensor in found.items()})


class PredictionHeads:
    """Heads of a model in plain torch."""

    def __init__(self, weights: HeadWeights, decoder: Decoder) -> None:
        self.weights = weights
        self.num_heads = weights.num_heads
        self._decoder = decoder

    @torch.inference_mode()
    def predict_logits(self, hidden: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, heads, vocab], of hidden states [N, hidden] and chosen tokens int64 [N]."""
        embedded = self._decoder.embedding.of(token_ids)
        states = self.weights.states(hidden, embedded, self._decoder.config.rms_norm_eps)
        return self._decoder.logits(states.flatten(0, 1)).view(hidden.shape[0], self.num_heads, -1)
