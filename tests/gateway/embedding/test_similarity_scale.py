"""Cosines of other encoders on the scale that the match model was fitted to."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.embedding.onnx_encoder import OnnxEncoder
from gateway.embedding.similarity_scale import (
    FITTED_EQUAL,
    FITTED_UNRELATED,
    MARGIN,
    SENTENCES,
    SimilarityScale,
    ends_of,
    scale_of,
)


def test_the_packaged_encoders_ends_are_the_fitted_ones(int8: OnnxEncoder) -> None:
    vectors = int8.encode([text for wordings in SENTENCES for text in wordings])
    assert ends_of(vectors) == pytest.approx((FITTED_UNRELATED, FITTED_EQUAL), abs=0.01)


def test_an_encoder_whose_vectors_all_lie_near_is_spread_out() -> None:
    rng = np.random.default_rng(1)
    own = rng.normal(size=(len(SENTENCES), 64))
    rows = np.repeat(own / np.linalg.norm(own, axis=1, keepdims=True), 2, axis=0)
    rows = np.concatenate([np.full((len(rows), 1), 1.5), rows], axis=1)
    vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    unrelated, equal = ends_of(vectors)
    assert unrelated > 0.6
    scale = scale_of(vectors)
    assert scale is not None
    assert scale.of(unrelated) == pytest.approx(FITTED_UNRELATED - MARGIN, abs=1e-6)
    assert scale.of(equal) == pytest.approx(FITTED_EQUAL - MARGIN, abs=1e-6)
    assert scale.of(2.0) == 1.0


def test_an_encoder_whose_vectors_are_all_equal_has_no_scale() -> None:
    assert scale_of(np.ones((2 * len(SENTENCES), 1), np.float32)) is None
    assert SimilarityScale().of(0.5) == 0.5
