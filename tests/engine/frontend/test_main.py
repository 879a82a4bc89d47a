"""The command line: every setting has a flag, and a wrong one a message."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from engine.__main__ import configs, main, make_parser
from engine.config import (
    AnswerConfig,
    CoreConfig,
    EngineConfigError,
    FrontConfig,
    core_config_json,
    parse_config,
)
from tests.engine.frontend.tiny_model import write_model


def parse(*argv: str) -> tuple[FrontConfig, CoreConfig]:
    options = vars(make_parser().parse_args(argv))
    options.pop("log_level")
    return configs(options)


def test_a_model_folder_is_enough(model_dir: Path) -> None:
    front, core = parse("--model", str(model_dir))
    assert front == FrontConfig(listen="127.0.0.1:8000", model_name="tiny")
    assert core == CoreConfig.of(model_dir=model_dir.resolve())


def test_every_setting_has_a_flag(model_dir: Path) -> None:
    front, core = parse(
        "--model", str(model_dir), "--listen", "unix:/x", "--name", "small", "--drain-timeout-s", "1.5",
        "--max-choices", "4", "--reasoning", "off", "--threads", "2", "--device", "cpu", "--no-enable-prefix-cache",
        "--block-size", "32",
    )  # fmt: skip
    assert (front.listen, front.model_name, front.drain_timeout_s, front.answers.max_choices) == (
        "unix:/x",
        "small",
        1.5,
        4,
    )
    assert front.answers.reasoning == "off"
    compute, kv = core.compute, core.kv
    assert (compute.num_threads, compute.device, kv.enable_prefix_cache, kv.block_size) == (
        2,
        "cpu",
        False,
        32,
    )
    text = make_parser().format_help()
    for name in (*(field.name for field in (*fields(FrontConfig), *fields(AnswerConfig))), *core.settings()):
        if name not in ("model_name", "answers"):
            assert f"--{name.replace('_', '-')}" in text


def test_adapters_are_named_one_flag_each(model_dir: Path) -> None:
    _, core = parse("--model", str(model_dir), "--lora", "law=/a/law", "--lora", "tax=/a/tax=2", "--max-loras", "3")
    assert core.adapters.named() == [("law", Path("/a/law")), ("tax", Path("/a/tax=2"))]
    assert core.adapters.num_places == 3
    assert parse_config(core_config_json(core)) == core


def test_the_help_states_what_each_setting_does() -> None:
    for action in make_parser()._actions:
        reported = (action.help or "").partition("(default")[0].strip()
        assert len(reported.split()) > 1, f"{action.option_strings[0]} says nothing but its default"


def test_a_wrong_setting_is_named(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineConfigError, match="block_size"):
        parse("--model", str(model_dir), "--block-size", "0")
    with pytest.raises(EngineConfigError, match="no such folder"):
        parse("--model", "/nowhere")
    assert main(["--model", "/nowhere"]) == 2
    assert capsys.readouterr().err.startswith("engine: model: /nowhere: no such folder")


@pytest.mark.e2e
def test_a_model_that_no_core_can_load_ends_the_engine_as_a_wrong_setting_does(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "strange")
    (folder / "config.json").write_text('{"model_type": "falcon"}')
    command = [sys.executable, "-m", "engine", "--model", str(folder), "--listen", f"unix:{tmp_path}/engine.sock"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert done.returncode == 2
    complaint = done.stderr.splitlines()[-1]
    assert complaint.startswith(f"engine: {folder}/config.json: model_type: 'falcon' is not supported; expected one of")


def test_the_front_does_not_import_what_only_the_core_needs() -> None:
    code = "import sys, engine.__main__; print(sorted({'torch', 'numba', 'numpy', 'transformers'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
