"""Calibration of 4-bit weights while a model is loaded: a short text runs through each layer before it is quantized."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from tokenizers import Tokenizer

from engine.attention.base import AttentionBackend, ForwardContext
from engine.models.activations import ActivationBuffers
from engine.models.config.config import ModelConfig
from engine.models.config.rope import RopeConfig
from engine.models.decoder import DecoderLayer
from engine.models.embedding import TokenEmbedding
from engine.models.layers import Rotary
from engine.models.loading.calibration_text import CALIBRATION_TEXT

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
        self, config: ModelConfig, embedding: TokenEmbedding, token_ids: list[int], backend: AttentionBackend
    ) -> None:
        """Embed the text.

        Args:
            config: Config of the model.
            embedding: Lookup of the token embeddings.
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
        embedding.into(torch.tensor(token_ids), self._activations.residual)
        self._unrotated = config.traits.unrotated_layers
        still = RopeConfig(theta=config.rope.theta, rotated_share=0.0)
        self._rotations, self._local_rotations, self._no_rotations = (
            Rotary(rope, config.head_dim, embedding.device).at(positions, num_tokens)
            for rope in (config.rope, config.local_rope or config.rope, still)
        )
        self._num_layers = 0

    def run(self, layer: DecoderLayer) -> None:
        """Run the states through the next layer, whose projections see their inputs."""
        cache = self._backend.allocate(self._num_blocks, _BLOCK_SIZE, layer.spec, self._dtype)
        rotations = self._rotations if layer.spec.sliding_window is None else self._local_rotations
        if self._num_layers in self._unrotated:
            rotations = self._no_rotations
        layer.forward(self._activations, rotations, self._backend, cache)
        self._num_layers += 1
