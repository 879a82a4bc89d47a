"""Model folders from GGUF files: made once, safely, and the same model as transformers and llama.cpp see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.frontend.text.tokenizer import load_tokenizer
from engine.models.gguf.container import GgufError
from engine.models.gguf.folder import default_cache_dir, prepare_folder
from engine.sampling.grammar import load_grammar_tokenizer
from tests.engine.models.checkpoints import make_reference
from tests.engine.models.families.parity import reference_greedy, reference_logits
from tests.engine.models.gguf.files import write_model
from tests.engine.models.gguf.real_models import REAL_MODELS
from tests.engine.models.paged import PagedRunner, Row

LLAMA_CPP_IDS = json.loads(Path(__file__).with_name("llama_cpp_ids.json").read_text(encoding="utf-8"))
MAX_LOGIT_DIFFERENCE = 1e-3
NUM_GREEDY = 64
FILES = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny model.gguf", make_reference("qwen3"))


@pytest.fixture(scope="module", params=REAL_MODELS)
def real_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    name: str = request.param
    file = REAL_MODELS[name]()
    return name, file, prepare_folder(file, tmp_path_factory.mktemp("cache"))


def test_a_folder_has_all_files_and_a_link_to_the_weights(model: Path, tmp_path: Path) -> None:
    folder = prepare_folder(model, tmp_path / "cache")

    assert folder.name.startswith("tiny_model-")
    assert {path.name for path in folder.iterdir()} == {*FILES, "source.json", "model.gguf"}
    assert (folder / "model.gguf").resolve() == model.resolve()
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen3"


def test_a_second_call_writes_nothing(model: Path, tmp_path: Path) -> None:
    folder = prepare_folder(model, tmp_path / "cache")
    before = {path.name: path.lstat().st_mtime_ns for path in folder.iterdir()}

    assert prepare_folder(model, tmp_path / "cache") == folder
    assert {path.name: path.lstat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_changed_file_gets_a_new_folder_and_the_old_one_goes(model: Path, tmp_path: Path) -> None:
    folder = prepare_folder(model, tmp_path / "cache")
    other = prepare_folder(write_model(tmp_path / "other.gguf", make_reference("llama2")), tmp_path / "cache")
    write_model(model, make_reference("qwen2"))

    renewed = prepare_folder(model, tmp_path / "cache")

    assert json.loads((renewed / "config.json").read_text())["model_type"] == "qwen2"
    assert sorted((tmp_path / "cache").iterdir()) == sorted([other, renewed])
    assert folder != renewed


def test_a_damaged_folder_is_made_anew(model: Path, tmp_path: Path) -> None:
    folder = prepare_folder(model, tmp_path / "cache")
    (folder / "tokenizer.json").unlink()

    assert prepare_folder(model, tmp_path / "cache") == folder
    assert (folder / "tokenizer.json").is_file()


def test_processes_that_make_the_same_folder_at_once_agree(model: Path, tmp_path: Path) -> None:
    code = "import sys, pathlib; from engine.models.gguf.folder import prepare_folder as prepare; "
    code += "sys.stdin.read(); print(prepare(*map(pathlib.Path, sys.argv[1:])))"
    command = [sys.executable, "-c", code, str(model), str(tmp_path / "cache")]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    # They start when their input ends: all at once, after their imports.
    found = {process.communicate(timeout=60)[0].strip() for process in processes}

    assert [process.returncode for process in processes] == [0] * 4
    assert found == {str(prepare_folder(model, tmp_path / "cache"))}
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")

    with pytest.raises(GgufError, match=r"cache: the folder of tiny model\.gguf cannot be written: .*XDG_CACHE_HOME"):
        prepare_folder(model, tmp_path / "cache")


def test_the_cache_is_in_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "penstock" / "models"

    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_cache_dir() == Path.home() / ".cache" / "penstock" / "models"


def test_a_failure_leaves_nothing(model: Path, tmp_path: Path) -> None:
    os.truncate(model, 2000)

    with pytest.raises(GgufError, match="truncated"):
        prepare_folder(model, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_texts_of_ten_scripts_have_the_tokens_of_llama_cpp(real_model: tuple[str, Path, Path]) -> None:
    name, _, folder = real_model
    tokenizer = load_tokenizer(folder)

    for row in LLAMA_CPP_IDS["texts"]:
        assert tokenizer.encode_bare(row["text"]) == row[name], row["text"]
        text = b"".join(tokenizer.display_bytes(token_id) for token_id in row[name])
        # SentencePiece does not tell its mark of a space from the same character in the text.
        assert text.decode().replace("▁", " ") == row["text"].replace("▁", " ")


def test_grammars_read_the_tokenizer(real_model: tuple[str, Path, Path]) -> None:
    _, _, folder = real_model
    vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]

    assert load_grammar_tokenizer(folder, vocab_size).vocab_size == vocab_size


def test_logits_and_greedy_tokens_are_those_of_transformers(real_model: tuple[str, Path, Path]) -> None:
    _, file, folder = real_model
    config = folder / "config.json"
    # Without it all tensors are read as numbers, as transformers does.
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": None}))
    reference: PreTrainedModel = AutoModelForCausalLM.from_pretrained(  # type: ignore[no-untyped-call]
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    prompt = [(7 * index * index + 3 * index + 1) % 4000 + 300 for index in range(48)]

    runner = PagedRunner(folder)
    row = Row(list(prompt))
    logits = runner.prefill(row, [512])

    assert (logits - reference_logits(reference, prompt)).abs().max() < MAX_LOGIT_DIFFERENCE
    for _ in range(NUM_GREEDY):
        row.tokens.append(int(logits[-1].argmax()))
        logits = runner.prefill(row, [1])
    assert row.tokens[len(prompt) :] == reference_greedy(reference, prompt, NUM_GREEDY)
