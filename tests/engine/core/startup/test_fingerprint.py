"""Fingerprints of engines: equal for copies of a model, different for whatever may change a token."""

from __future__ import annotations

import shutil
from pathlib import Path

from engine.config import CoreConfig
from engine.core.startup.fingerprint import answer_fingerprint, model_state, processor_digest
from engine.protocol import CpuKernels

COMPILED = CpuKernels(steps="compiled", products="8 bfloat16", kv_dtype="float32", num_threads=1)


def model(folder: Path, weights: bytes) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden_size": 8}')
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def fingerprint(folder: Path, kernels: CpuKernels | None = COMPILED, **settings: object) -> str:
    return answer_fingerprint(CoreConfig.of(folder, **settings), "AVX2", "torch.float32", kernels)


def test_copies_of_a_model_share_it_whatever_their_threads_and_batches(tmp_path: Path) -> None:
    first = model(tmp_path / "first", bytes(3_000_000))
    second = Path(shutil.copytree(first, tmp_path / "second"))
    more_threads = CpuKernels(steps="compiled", products="8 bfloat16", kv_dtype="float32", num_threads=8)
    assert fingerprint(first) == fingerprint(second, more_threads, max_num_seqs=3, num_threads=8)


def test_other_weights_of_the_same_size_are_another_model(tmp_path: Path) -> None:
    first = fingerprint(model(tmp_path / "first", bytes(3_000_000)))
    assert fingerprint(model(tmp_path / "large", bytes(2_999_000) + b"\1" * 1_000)) != first
    small = fingerprint(model(tmp_path / "small", bytes(1_000)))
    assert fingerprint(model(tmp_path / "changed", bytes(500) + b"\1" + bytes(499))) != small


def test_other_numbers_are_another_engine(tmp_path: Path) -> None:
    folder = model(tmp_path / "model", b"weights")
    in_torch = CpuKernels(steps="torch", products="8 bfloat16", kv_dtype="float32", num_threads=1)
    found = {
        fingerprint(folder),
        fingerprint(folder, in_torch),
        fingerprint(folder, None),
        fingerprint(folder, None, kv_dtype="fp8"),
        fingerprint(folder, quantization="int8"),
        fingerprint(folder, tensor_parallel=2),
    }
    assert len(found) == 6


def test_another_processor_is_stated_apart() -> None:
    zen4, zen5 = (
        CpuKernels(steps="compiled", processor=f"x86_64-unknown-linux-gnu {name} +avx512f")
        for name in ("znver4", "znver5")
    )
    assert processor_digest(zen4) != processor_digest(zen5)
    assert processor_digest(None) == processor_digest(CpuKernels(steps="torch")) == ""


def state(folder: Path, **settings: object) -> list[str]:
    return model_state(CoreConfig.of(folder, **settings), "torch.float32", COMPILED).split(";")


def test_an_engine_states_model_numbers_and_chat_template_apart(tmp_path: Path) -> None:
    folder = model(tmp_path / "model", b"weights")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "a"}')
    digest, numbers, template = state(folder)
    assert numbers == "none/float32/float32"
    assert state(folder, quantization="int8") == [digest, "int8/float32/float32", template]
    (folder / "tokenizer_config.json").write_text('{"chat_template": "b"}')
    assert state(folder)[:2] == [digest, numbers]
    assert state(folder)[2] != template
    (folder / "model.safetensors").write_bytes(b"weightz")
    assert state(folder)[0] != digest


def test_templates_of_other_names_belong_to_the_chat_template(tmp_path: Path) -> None:
    folder = model(tmp_path / "model", b"weights")
    (folder / "chat_template.jinja").write_text("a")
    digest, _, template = state(folder)
    whole = fingerprint(folder)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("b")
    assert state(folder)[0] == digest
    assert state(folder)[2] != template
    assert fingerprint(folder) != whole
