"""The encoder's graph: built from the weights alone, in both precisions, and the same bytes each time."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from gateway.embedding.encoder import Precision
from gateway.embedding.graph import build_graph
from gateway.embedding.model_files import BertShape, ModelFiles

WIDTH, TOKENS, WORDS = 64, 16, 40


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    """A BERT of one narrow layer."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (TOKENS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    layer = "encoder.layer.0."
    for name, width in (
        *((f"{layer}attention.self.{part}", (WIDTH, WIDTH)) for part in ("query", "key", "value")),
        (f"{layer}attention.output.dense", (WIDTH, WIDTH)),
        (f"{layer}intermediate.dense", (4 * WIDTH, WIDTH)),
        (f"{layer}output.dense", (WIDTH, 4 * WIDTH)),
    ):
        shapes |= {f"{name}.weight": width, f"{name}.bias": width[:1]}
    for norm in ("embeddings.LayerNorm", f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"):
        shapes |= {f"{norm}.weight": (WIDTH,), f"{norm}.bias": (WIDTH,)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    shape = BertShape(num_layers=1, num_heads=4, dimensions=WIDTH, epsilon=1e-12)
    return ModelFiles("narrow", Path(folder / "model.safetensors"), Path(folder / "tokenizer.json"), shape)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_graph_takes_ids_and_mask_and_gives_one_vector_a_text(files: ModelFiles, precision: Precision) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(build_graph(files, precision), providers=["CPUExecutionProvider"])
    ids = np.array([[1, 2, 3, 0], [1, 2, 3, 9]], np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 0]], np.int32)
    (vectors,) = session.run(None, {"ids": ids, "mask": mask})
    assert vectors.shape == (2, WIDTH)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5, err_msg="what is masked says nothing")


def test_the_same_weights_give_the_same_bytes(files: ModelFiles) -> None:
    first, second = (hashlib.sha256(build_graph(files, "int8")).digest() for _ in range(2))
    assert first == second


def test_int8_holds_the_large_weights_in_a_byte_each(files: ModelFiles) -> None:
    sizes = {precision: len(build_graph(files, precision)) for precision in ("fp32", "int8")}
    assert sizes["int8"] < sizes["fp32"]
    onnx.load_from_string(build_graph(files, "int8"))
