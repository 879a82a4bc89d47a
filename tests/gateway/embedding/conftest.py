"""Graphs that are made once for all tests of the encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.embedding.encoder import Precision
from gateway.embedding.graph import build_graph
from gateway.embedding.make import encoder_id, graph_file
from gateway.embedding.model_files import ModelFiles, installed_model
from gateway.embedding.onnx_encoder import OnnxEncoder


@pytest.fixture(scope="session")
def model_files() -> ModelFiles:
    return installed_model()


@pytest.fixture(scope="session")
def graph_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="session")
def fp32(model_files: ModelFiles, graph_folder: Path) -> OnnxEncoder:
    return made(model_files, graph_folder, "fp32")


@pytest.fixture(scope="session")
def int8(model_files: ModelFiles, graph_folder: Path) -> OnnxEncoder:
    return made(model_files, graph_folder, "int8")


def made(files: ModelFiles, folder: Path, precision: Precision) -> OnnxEncoder:
    graph = graph_file(folder, files, precision).make(lambda: build_graph(files, precision))
    return OnnxEncoder(graph, files, encoder_id(files, precision))
