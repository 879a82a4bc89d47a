"""Settings of one engine: what `penstock engine` takes, resolved once into frozen values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

import msgspec

DType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]
Quantization = Literal["none", "int8", "int8_dynamic", "int4", "fp8"]
KVDtype = Literal["auto", "float32", "bfloat16", "int8", "fp8"]
Overlap = Literal["auto", "on", "off"]
Speculation = Literal["off", "ngram", "draft", "auto"]


class EngineConfigError(ValueError):
    """A setting, or the model it names, is wrong; the message says which and the remedy. Starting again cannot help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeConfig:
    """How the model is computed; EngineConfigError names the setting that makes no sense."""

    device: Device = "auto"
    """Where the model runs; `auto`: on the first GPU, if there is one."""
    dtype: DType = "auto"
    """`auto`: the checkpoint's dtype on CUDA, float32 on CPU."""
    num_threads: int = 0
    """Threads for torch on CPU; 0: every core this process may use, less one for the front where there are four."""
    quantization: Quantization = "none"
    """What plain weights become at load; with `int8_dynamic` on a CPU, each row of the activations becomes int8 too."""
    tensor_parallel: int = 1
    """Processes that share every layer; on GPUs one for each."""
    cuda_graphs: bool = True
    """Whether decode and verification steps are captured on a GPU and replayed as one launch each."""
    compiled_steps: bool = True
    """Whether steps of few tokens of a float32 model run compiled on a CPU, as far as that is measured to be faster."""
    overlap: Overlap = "auto"
    """Whether a step is launched before the last one's tokens are there; `auto`: on a GPU, without speculation."""

    def __post_init__(self) -> None:
        _require_positive(self, "tensor_parallel")
        _require_automatic(self, "num_threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class KVConfig:
    """The KV pool; EngineConfigError names the setting that makes no sense."""

    kv_dtype: KVDtype = "auto"
    """What the KV pool holds; `auto`: the model's own numbers, of a bfloat16 checkpoint's compiled steps bfloat16."""
    block_size: int = 16
    """Tokens in one block of the KV pool."""
    num_blocks: int = 0
    """Blocks in the KV pool; 0: sized from measured memory."""
    kv_memory_bytes: int = 0
    """Upper bound for the KV pool; 0: a share of what is free (see `memory_ratio`)."""
    memory_ratio: float = 0.25
    """Share of the memory still free after the warm-up peak that the KV pool may take (0.9 is usual on a GPU)."""
    enable_prefix_cache: bool = True
    """Whether blocks of earlier prompts are found again by those that begin alike."""

    def __post_init__(self) -> None:
        _require_positive(self, "block_size")
        _require_automatic(self, "num_blocks", "kv_memory_bytes")
        if not 0.0 < self.memory_ratio <= 1.0:
            raise EngineConfigError(f"memory_ratio: expected a number in (0, 1], got {self.memory_ratio}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConfig:
    """What may be in a step, and what may wait for one; EngineConfigError names the setting that makes no sense."""

    max_model_len: int = 0
    """Most tokens of prompt and answer together; 0: what the model's config says, of a model with two sets of rope
    frequencies as far as the first reaches."""
    max_num_rows: int = 64
    """Sequences that may be in one step."""
    step_token_budget: int = 512
    """Most tokens (prefill and decode together) computed in one step."""
    max_waiting: int = 4096
    """Sequences that may wait; the front refuses above it."""
    max_queue_wait_s: float = 30.0
    """Forecast wait above which interactive and long requests are refused with a time to come back."""
    max_batch_wait_s: float = 600.0
    """The same for batch requests."""
    itl_target_ms: float = 50.0
    """Longest step that a short prompt's chunk may make while others decode, in milliseconds."""
    prefill_slack_ratio: float = 1.4
    """How many times a plain decode step the chunk of a long or batch prompt may make it, within the target; where
    several wait, twice as much may be added."""

    def __post_init__(self) -> None:
        _require_positive(self, "max_num_rows", "step_token_budget", "max_waiting")
        _require_automatic(self, "max_model_len")
        for name in ("max_queue_wait_s", "max_batch_wait_s", "itl_target_ms"):
            if not getattr(self, name) > 0.0:
                raise EngineConfigError(f"{name}: expected a positive number, got {getattr(self, name)}")
        if not self.prefill_slack_ratio > 1.0:
            raise EngineConfigError(f"prefill_slack_ratio: expected more than 1, got {self.prefill_slack_ratio}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftingConfig:
    """Speculative decoding; EngineConfigError names the setting that makes no sense."""

    speculation: Speculation = "off"
    """Where drafts come from: lookup in the text itself, the draft model, or whichever pays at the moment (`auto`)."""
    draft_model_dir: Path | None = None
    """A smaller model with the same tokenizer, for `draft` and `auto`."""
    max_drafts: int = 8
    """Most tokens drafted for one row in one step."""

    def __post_init__(self) -> None:
        _require_positive(self, "max_drafts")
        if self.speculation == "draft" and self.draft_model_dir is None:
            raise EngineConfigError("speculation: draft needs a draft model; name its folder or choose ngram or auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """What the core process needs; everything the scheduler, the KV pool and the model runner read.

    A setting has the name of its flag; no two sections have one alike.
    """

    model_dir: Path
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    kv: KVConfig = field(default_factory=KVConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    drafting: DraftingConfig = field(default_factory=DraftingConfig)

    def __post_init__(self) -> None:
        if self.compute.overlap == "on" and self.drafting.speculation != "off":
            raise EngineConfigError(
                "overlap: on does not go with speculation, whose drafts need the last step's tokens"
            )

    @classmethod
    def of(cls, model_dir: Path, **settings: Any) -> CoreConfig:
        """Return the configuration with these settings, each put into its section. Raises EngineConfigError."""
        sections: dict[str, Any] = {}
        left = dict(settings)
        for name, kind in SECTIONS.items():
            sections[name] = kind(**{item.name: left.pop(item.name) for item in fields(kind) if item.name in left})
        if left:
            raise EngineConfigError(f"unknown settings: {', '.join(sorted(left))}")
        return cls(model_dir=model_dir, **sections)

    def changed(self, **settings: Any) -> CoreConfig:
        """Return a copy with other values of these settings."""
        return CoreConfig.of(self.model_dir, **{**self.settings(), **settings})

    def settings(self) -> dict[str, Any]:
        """Return every setting but the model's folder, by the name of its flag."""
        sections = (getattr(self, name) for name in SECTIONS)
        return {item.name: getattr(section, item.name) for section in sections for item in fields(section)}


SECTIONS: Final[dict[str, type[Any]]] = {
    "compute": ComputeConfig,
    "kv": KVConfig,
    "batch": BatchConfig,
    "drafting": DraftingConfig,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontConfig:
    """What the front process needs."""

    listen: str
    """`unix:/path/to.sock` or `host:port`."""
    model_name: str
    """The name clients ask for; defaults to the model directory's own name."""
    drain_timeout_s: float = 30.0
    """How long requests under way may take to finish once the process is asked to stop."""
    max_body_bytes: int = 16 * 1024 * 1024
    """Longest request body that is read."""
    max_choices: int = 16
    """Most answers (`n`) that one request may ask for."""
    max_top_logprobs: int = 20
    """Most alternatives a token (`top_logprobs`) that one request may ask for."""
    otlp_endpoint: str = ""
    """Where spans of traced requests are posted in OTLP's JSON, such as http://127.0.0.1:4318/v1/traces."""
    warm: int = 0
    """Standby cores that take over when the core is lost; on a CPU each holds a copy of the weights."""

    def __post_init__(self) -> None:
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise EngineConfigError(f"otlp_endpoint: expected an http:// or https:// URL, got {self.otlp_endpoint!r}")
        if self.warm < 0:
            raise EngineConfigError(f"warm: expected 0 (none) or more standby cores, got {self.warm}")


def core_config_json(config: CoreConfig) -> str:
    """Return the configuration's JSON form, which `parse_config` reads."""
    settings = {"model_dir": config.model_dir, **config.settings()}
    return json.dumps({key: str(value) if isinstance(value, Path) else value for key, value in settings.items()})


def parse_config(text: str) -> CoreConfig:
    """Return the configuration of its JSON form. Raises EngineConfigError naming the field."""
    try:
        given = msgspec.json.decode(text, type=dict[str, Any])
        if "model_dir" not in given:
            raise EngineConfigError("--config: model_dir is missing")
        kinds = {key: kind for section in SECTIONS.values() for key, kind in get_type_hints(section).items()}
        kinds["model_dir"] = Path
        if unknown := given.keys() - kinds.keys():
            raise EngineConfigError(f"--config: unknown settings: {', '.join(sorted(unknown))}")
        settings = {key: _typed(kinds[key], key, value) for key, value in given.items()}
    except msgspec.MsgspecError as error:
        raise EngineConfigError(f"--config: {error}") from error
    return CoreConfig.of(settings.pop("model_dir"), **settings)


def _typed(kind: Any, key: str, value: object) -> Any:
    if kind in (Path, Path | None) and isinstance(value, str):
        return Path(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise EngineConfigError(f"--config: {error} - at `$.{key}`") from error


def _require_positive(section: object, *names: str) -> None:
    for name in names:
        if getattr(section, name) < 1:
            raise EngineConfigError(f"{name}: expected a positive integer, got {getattr(section, name)}")


def _require_automatic(section: object, *names: str) -> None:
    for name in names:
        if getattr(section, name) < 0:
            raise EngineConfigError(f"{name}: expected 0 (automatic) or more, got {getattr(section, name)}")
