"""The encoder beside another implementation of the same weights, and what batches may not change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from gateway.embedding.model_files import ModelFiles
from gateway.embedding.onnx_encoder import OnnxEncoder

TEXTS = (
    "How do I reset my password?",
    "how can a password be set again",
    "The invoice of 14 March is 30 € too high; please send a corrected one.",
    "Größe, naïve, 東京, emoji 🙂 and a\ttab",
    "why?",
    "It rains in the mountains. " * 12,
    "A text of more tokens than the model reads, so that its end is cut away. " * 40,
)


@pytest.fixture(scope="module")
def expected(model_files: ModelFiles) -> NDArray[np.float32]:
    """The same weights in sentence-transformers, on torch: its BERT, its tokens, its pooling, text by text."""
    oracle = SentenceTransformer(str(model_files.weights.parent), device="cpu")
    oracle.max_seq_length = model_files.max_tokens
    return np.concatenate([oracle.encode([text], show_progress_bar=False) for text in TEXTS])


def cosines(found: NDArray[np.float32], expected: NDArray[np.float32]) -> NDArray[np.float32]:
    products: NDArray[np.float32] = (found * expected).sum(axis=1)
    return products


def test_fp32_agrees_with_sentence_transformers(fp32: OnnxEncoder, expected: NDArray[np.float32]) -> None:
    assert cosines(fp32.encode(TEXTS), expected).min() > 1 - 1e-5


def test_int8_stays_near_sentence_transformers(int8: OnnxEncoder, expected: NDArray[np.float32]) -> None:
    assert cosines(int8.encode(TEXTS), expected).min() > 0.995


def test_vectors_have_unit_length(fp32: OnnxEncoder, int8: OnnxEncoder) -> None:
    for encoder in (fp32, int8):
        found = encoder.encode(TEXTS)
        assert found.shape == (len(TEXTS), encoder.dimensions)
        assert found.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[::-1], TEXTS[:2] * 9])
def test_company_in_a_batch_changes_no_vector(fp32: OnnxEncoder, int8: OnnxEncoder, texts: Sequence[str]) -> None:
    for encoder in (fp32, int8):
        alone = np.concatenate([encoder.encode([text]) for text in texts])
        np.testing.assert_allclose(encoder.encode(texts), alone, atol=2e-4)


def test_a_text_is_read_up_to_the_token_limit(fp32: OnnxEncoder) -> None:
    short, long, longest = "word " * 200, "word " * 254, "word " * 254 + "never read"
    found = fp32.encode([short, long, longest])
    assert np.array_equal(found[1], found[2])
    assert not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("text", ["", " \n", "x" * 300, "🙂🙃", "𝔘𝔫𝔠𝔦𝔞𝔩 𝔱𝔢𝔵𝔱", "call " + " ".join("🙂🙃🙂")])
def test_a_text_that_cannot_be_read_is_near_nothing(int8: OnnxEncoder, text: str) -> None:
    found = int8.encode(["how do I call you?", text])
    assert np.linalg.norm(found[0]) == pytest.approx(1.0, abs=1e-5)
    assert not found[1].any()


def test_half_a_character_does_no_harm(int8: OnnxEncoder) -> None:
    broken, whole = int8.encode(
        ["what does \ud800 stand for in this sentence", "what does ? stand for in this sentence"]
    )
    np.testing.assert_allclose(broken, whole, atol=1e-5)


def test_no_text_is_no_vector(int8: OnnxEncoder) -> None:
    assert int8.encode([]).shape == (0, int8.dimensions)


def test_precisions_have_ids_of_their_own(fp32: OnnxEncoder, int8: OnnxEncoder) -> None:
    assert fp32.id != int8.id
    assert "int8" in int8.id
