"""Calibration of 4-bit weights while a model is loaded: a short text runs through each layer before it is quantized."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from tokenizers import Tokenizer

from engine.attention.base import AttentionBackend, ForwardContext
from engine.models.activations import ActivationBuffers
from engine.models.config.config import ModelConfig
from engine.models.decoder import DecoderLayer
from engine.models.layers import Rotary
from engine.quantization.calibration_text import CALIBRATION_TEXT

logger = logging.getLogger(__name__)

_BLOCK_SIZE = 16


def calibration_tokens(model_dir: Path, vocab_size: int) -> list[int]:
    """Return the token ids of the calibration text, with the special tokens that the tokenizer adds.

    The list is empty if the folder has no tokenizer that can be read; weights are then quantized without inputs.
    """
    path = model_dir / "tokenizer.json"
    try:
        token_ids: list[int] = Tokenizer.from_file(str(path)).encode(CALIBRATION_TEXT).ids
    except Exception as error:  # the library raises nothing more specific
        logger.warning("int4 weights are not calibrated: %s: %s", path, error)
        return []
    if max(token_ids, default=0) >= vocab_size:
        logger.warning("int4 weights are not calibrated: %s has more tokens than the model", path)
        return []
    return token_ids


class CalibrationRun:
    """Hidden states of the calibration text, computed layer by layer."""

    def __init__(
        self, config: ModelConfig, embedding: torch.Tensor, token_ids: list[int], backend: AttentionBackend
    ) -> None:
        """Embed the text.

        Args:
            config: Config of the model.
            embedding: Embedding [vocab, hidden].
            token_ids: Text, at least one token.
            backend: Attention backend; its state belongs to the text until the next step.
        """
        num_tokens = len(token_ids)
        self._backend, self._dtype = backend, embedding.dtype
        self._num_blocks = -(-num_tokens // _BLOCK_SIZE)
        positions = torch.arange(num_tokens)
        backend.prepare(
            ForwardContext(
                positions=positions,
                slot_mapping=positions,
                query_starts=[0, num_tokens],
                context_lens=[num_tokens],
                block_tables=torch.arange(self._num_blocks).unsqueeze(0),
                block_size=_BLOCK_SIZE,
            )
        )
        self._activations = ActivationBuffers(config, embedding.dtype, embedding.device).of(num_tokens)
        self._activations.residual.copy_(embedding[torch.tensor(token_ids)])
        if config.traits.embedding_scale is not None:
            self._activations.residual.mul_(torch.tensor(config.traits.embedding_scale, dtype=embedding.dtype).item())
        self._rotations = Rotary(config.rope, config.head_dim, embedding.device).at(positions, num_tokens)
        self._local_rotations = self._rotations
        if config.local_rope is not None:
            local = Rotary(config.local_rope, config.head_dim, embedding.device)
            self._local_rotations = local.at(positions, num_tokens)

    def run(self, layer: DecoderLayer) -> None:
        """Run the states through the next layer, whose projections see their inputs."""
        cache = self._backend.allocate(self._num_blocks, _BLOCK_SIZE, layer.spec, self._dtype)
        rotations = self._rotations if layer.spec.sliding_window is None else self._local_rotations
        layer.forward(self._activations, rotations, self._backend, cache)
