"""The gate measures what quantization costs, and refuses above a stated loss."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
import torch

from engine.attention.torch_attention import TorchAttention
from engine.bundled import model_dir
from engine.models.loading.loader import load_model
from engine.selftest.quality import QualityLoss, Variant, VariantQuality, file_texts, loss, measure_quality, task_texts
from engine.selftest.quantize_command import main
from engine.selftest.text_model import ScoredText, TextModel
from engine.training.data.example import Example
from engine.training.data.generator import test_set as held_out
from tests.engine.models.checkpoints import make_reference, save_checkpoint

CPU = torch.device("cpu")
LARGE = model_dir("large")


@pytest.fixture(scope="module")
def tasks() -> list[Example]:
    return held_out(3, 1)


@pytest.fixture(scope="module")
def texts(tasks: list[Example]) -> list[ScoredText]:
    return task_texts(LARGE, tasks)


@pytest.fixture(scope="module")
def unquantized(texts: list[ScoredText], tasks: list[Example]) -> VariantQuality:
    return measure_quality(Variant(model_dir=LARGE), texts, tasks)


def test_perplexity_is_what_transformers_finds(tmp_path: Path) -> None:
    reference = make_reference("qwen3")
    folder = save_checkpoint(reference, tmp_path)
    backend = TorchAttention(CPU)
    model = load_model(folder, dtype=torch.float32, device=CPU, backend=backend)
    tokens = [token % 97 for token in range(3, 900, 7)]
    with torch.inference_mode():
        logits = reference(torch.tensor([tokens])).logits[0, :-1]
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:]))

    text = ScoredText(tokens, [True] * (len(tokens) - 1) + [False])
    found = TextModel(model, backend, torch.float32, CPU).perplexity([text])

    assert math.log(found) == pytest.approx(float(expected), rel=1e-4)


def test_greedy_answers_do_not_depend_on_their_batch(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("llama3"), tmp_path)
    backend = TorchAttention(CPU)
    model = TextModel(load_model(folder, dtype=torch.float32, device=CPU, backend=backend), backend, torch.float32, CPU)
    prompts = [[index, *range(3 * index + 1)] for index in range(6)]

    together = model.answers(prompts, frozenset({5}), 12)

    assert together == [model.answers([prompt], frozenset({5}), 12)[0] for prompt in prompts]
    assert not any(5 in answer for answer in together)


@pytest.mark.parametrize(
    ("variant", "max_loss", "min_equal"),
    # What the engine guarantees: 0.5 % with int8, 2 % with int4.
    [
        (Variant(model_dir=LARGE, quantization="int8"), 0.005, 0.9),
        (Variant(model_dir=LARGE, quantization="int8_dynamic"), 0.005, 0.9),
        (Variant(model_dir=LARGE, quantization="int4"), 0.02, 0.8),
        (Variant(model_dir=LARGE, kv_dtype="int8"), 0.005, 0.9),
    ],
    ids=["int8", "int8_dynamic", "int4", "kv int8"],
)
def test_the_bundled_model_loses_little(
    variant: Variant,
    max_loss: float,
    min_equal: float,
    texts: list[ScoredText],
    tasks: list[Example],
    unquantized: VariantQuality,
) -> None:
    found = measure_quality(variant, texts, tasks)

    assert abs(loss(unquantized, found).perplexity) < max_loss
    equal = sum(one == other for one, other in zip(unquantized.answers, found.answers, strict=True))
    assert equal / len(tasks) >= min_equal


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (QualityLoss(perplexity=0.01, accuracy=1.0), None),
        (QualityLoss(perplexity=-0.2, accuracy=None), None),
        (QualityLoss(perplexity=0.011, accuracy=0.0), "perplexity loss 1.10%"),
        (QualityLoss(perplexity=0.0, accuracy=1.5), "accuracy loss of 1.5 points"),
        (QualityLoss(perplexity=math.inf, accuracy=None), "perplexity loss"),
    ],
)
def test_what_is_above_the_stated_loss_is_named(found: QualityLoss, named: str | None) -> None:
    excess = found.excess(0.01, 1.0)

    assert excess is None if named is None else excess is not None and named in excess


def test_a_model_that_makes_no_sense_has_lost_everything() -> None:
    before = VariantQuality(perplexity=2.0, accuracy=None, answers=())

    assert loss(before, VariantQuality(perplexity=math.nan, accuracy=None, answers=())).perplexity == math.inf


def test_the_command_passes_a_small_loss_and_ends_with_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Where is my order? It is on its way. " * 30)
    arguments = [
        "--check",
        "--model",
        str(model_dir("small")),
        "--text",
        str(text),
        "--samples",
        "1",
        "--threads",
        "1",
        "--max-accuracy-loss",
        "100",
    ]

    assert main([*arguments, "--max-perplexity-loss", "0.5"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["refused"] is None
    assert result["quantization"] == "int8"
    assert 0 <= result["equal_answers_ratio"] <= 1
    assert main([*arguments, "--max-perplexity-loss", "-0.9"]) == 1
    assert "perplexity" in json.loads(capsys.readouterr().out.splitlines()[-1])["refused"]


def test_models_of_ones_own_need_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--model", str(tmp_path)]) == 2
    assert "--text" in capsys.readouterr().err


def test_a_text_is_cut_into_pieces_that_hold_every_token_once(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("A parcel and a letter. " * 400)

    pieces = file_texts(LARGE, path, 1200)

    assert len(list(itertools.chain.from_iterable(piece.token_ids for piece in pieces))) == 1200
    assert all(len(piece.token_ids) <= 512 and not piece.is_target[-1] for piece in pieces)
