"""Settings of one engine: the flags of `penstock engine` as two frozen configurations."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

import msgspec

DType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]
MAX_TOKENIZER_MERGES = 750_000
"""Largest number of merges of a tokenizer; the largest published vocabulary, Gemma 3's, has 514,906."""

Quantization = Literal["none", "int8", "int8_dynamic", "int4", "fp8"]
KVDtype = Literal["auto", "float32", "bfloat16", "int8", "fp8"]
Overlap = Literal["auto", "on", "off"]
Speculation = Literal["off", "ngram", "draft", "auto"]
Reasoning = Literal["auto", "off", "think", "think_response", "thought_process", "mistral", "harmony"]

_ADAPTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class EngineConfigError(ValueError):
    """A wrong setting or an unusable model.

    The message names the setting and the remedy. A restart with the same settings fails again.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeConfig:
    """Settings of the model's computation; EngineConfigError names an invalid one."""

    device: Device = "auto"
    """Device of the model; `auto`: the first GPU if there is one, otherwise the CPU."""
    dtype: DType = "auto"
    """Dtype of the weights; `auto`: the checkpoint's dtype on CUDA, float32 on CPU."""
    num_threads: int = 0
    """Number of CPU threads for torch; 0: every core of this process, less one for the front from four cores up."""
    quantization: Quantization = "none"
    """Quantization of unquantized weights at load; `int8_dynamic` on a CPU also rounds each activation row to int8."""
    tensor_parallel: int = 1
    """Number of processes that share every layer; on GPUs, one process for each GPU."""
    cuda_graphs: bool = True
    """True to capture decode and verification steps as CUDA graphs and replay each as one launch."""
    compiled_steps: bool = True
    """True to compile the steps of a float32 model on a CPU; prompts use torch while that is measured to be faster."""
    overlap: Overlap = "auto"
    """Launch of a step before the last one has returned its tokens; `auto`: on a GPU without speculation."""

    def __post_init__(self) -> None:
        _require_positive(self, "tensor_parallel")
        _require_automatic(self, "num_threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class KVConfig:
    """The KV pool; EngineConfigError names the setting that makes no sense."""

    kv_dtype: KVDtype = "auto"
    """Dtype of the KV pool; `auto`: the model's dtype, or bfloat16 with compiled steps of a bfloat16 checkpoint."""
    block_size: int = 16
    """Number of tokens in one block of the KV pool."""
    num_blocks: int = 0
    """Number of blocks in the KV pool; 0: sized from measured memory."""
    kv_memory_bytes: int = 0
    """Upper bound of the KV pool in bytes; 0: a share of the free memory (see `memory_utilization`)."""
    memory_utilization: float = 0.0
    """Share of the memory left beside weights and largest step that the KV pool may take; 0: 0.5 on a CPU, else 0.9."""
    enable_prefix_cache: bool = True
    """True to reuse the KV blocks of earlier prompts that begin alike."""

    def __post_init__(self) -> None:
        _require_positive(self, "block_size")
        _require_automatic(self, "num_blocks", "kv_memory_bytes")
        if not 0.0 <= self.memory_utilization <= 1.0:
            raise EngineConfigError(
                f"memory_utilization: expected a number in (0, 1] or 0 (automatic), got {self.memory_utilization}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConfig:
    """Limits of a step and of the waiting queue; EngineConfigError names an invalid one."""

    max_model_len: int = 0
    """Maximum number of prompt and output tokens of a sequence; 0: the limit in the model's config.

    A model with two sets of rope frequencies is limited to the range of the first.
    """
    max_num_seqs: int = 64
    """Maximum number of sequences in one step."""
    max_num_batched_tokens: int = 512
    """Maximum number of tokens computed in one step, prefill and decode together."""
    max_waiting: int = 4096
    """Maximum number of waiting sequences; the front refuses requests above it."""
    max_queue_wait_s: float = 600.0
    """Forecast wait above which the front refuses interactive and long requests with `retry-after`, in seconds.

    A request that states a deadline is refused as soon as its forecast wait exceeds that.
    """
    max_batch_wait_s: float = 600.0
    """Forecast wait above which the front refuses batch requests with `retry-after`, in seconds."""
    itl_target_ms: float = 50.0
    """Longest step that a short prompt's chunk may cause while others decode, in milliseconds."""
    prefill_slack_ratio: float = 1.4
    """Factor by which the chunk of a long or batch prompt may lengthen a plain decode step, within the target.

    Twice the extra time is allowed while several prompts wait.
    """

    def __post_init__(self) -> None:
        _require_positive(self, "max_num_seqs", "max_num_batched_tokens", "max_waiting")
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
    """Source of draft tokens: n-gram lookup in the text itself, the draft model, or the better of the two (`auto`)."""
    draft_model_dir: Path | None = None
    """Folder of a smaller model with the same tokenizer, for `draft` and `auto`."""
    num_speculative_tokens: int = 8
    """Maximum number of draft tokens of one sequence in one step."""

    def __post_init__(self) -> None:
        _require_positive(self, "num_speculative_tokens")
        if self.speculation == "draft" and self.draft_model_dir is None:
            raise EngineConfigError("speculation: draft needs a draft model; name its folder or choose ngram or auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """Adapters beside the model's weights; EngineConfigError names the setting that makes no sense."""

    lora: tuple[str, ...] = ()
    """Adapter to load at start, as NAME=PATH; repeatable."""
    max_loras: int = 0
    """Maximum number of adapters in memory; 0: as many as `--lora` names."""
    max_lora_rank: int = 16
    """Maximum rank of an adapter; memory is reserved for it."""
    lora_memory_bytes: int = 0
    """Upper bound of the memory of all adapters, in bytes; 0: none."""
    lora_dir: Path | None = None
    """Folder whose adapters clients may load and unload over HTTP; none: those endpoints are off."""

    def __post_init__(self) -> None:
        _require_positive(self, "max_lora_rank")
        _require_automatic(self, "max_loras", "lora_memory_bytes")
        names = [name for name, _ in self.named()]
        if len(set(names)) < len(names):
            raise EngineConfigError(f"lora: the names {', '.join(names)} are not all different")
        if self.max_loras and self.max_loras < len(names):
            raise EngineConfigError(f"max_loras: {len(names)} adapters are named, got {self.max_loras}")
        if self.lora_dir is not None and not self.num_places:
            raise EngineConfigError("lora_dir: needs max_loras above 0")

    @property
    def num_places(self) -> int:
        """Number of adapters that fit into memory at once."""
        return self.max_loras or len(self.lora)

    def named(self) -> list[tuple[str, Path]]:
        """Return name and folder of each adapter to load at start. Raises EngineConfigError."""
        found: list[tuple[str, Path]] = []
        for item in self.lora:
            name, equals, path = item.partition("=")
            if not equals or not path or not is_adapter_name(name):
                raise EngineConfigError(
                    f"lora: expected NAME=PATH with a name of letters, digits, '.', '_' and '-', got {item[:128]!r}"
                )
            found.append((name, Path(path)))
        return found


def is_adapter_name(name: str) -> bool:
    """Return whether an adapter may have this name."""
    return _ADAPTER_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """Settings of the core process: everything the scheduler, the KV pool and the model runner read.

    A setting has the name of its flag; no two sections have one alike.
    """

    model_dir: Path
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    kv: KVConfig = field(default_factory=KVConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    drafting: DraftingConfig = field(default_factory=DraftingConfig)
    adapters: LoraConfig = field(default_factory=LoraConfig)

    def __post_init__(self) -> None:
        if self.adapters.num_places and self.compute.tensor_parallel > 1:
            raise EngineConfigError("max_loras: adapters do not go with tensor_parallel above 1")
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
    "adapters": LoraConfig,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerConfig:
    """Bounds on the answers to one request, and the form in which they show reasoning."""

    max_choices: int = 16
    """Maximum number of choices (`n`) of one request."""
    max_top_logprobs: int = 20
    """Maximum number of alternatives per token (`top_logprobs`) of one request."""
    reasoning: Reasoning = "auto"
    """Syntax of the model's reasoning, which answers show apart; `auto`: the template's, `off`: part of the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontConfig:
    """Settings of the front process: address, limits of a request, tracing and standbys."""

    listen: str
    """Address to listen on: `unix:/path/to.sock` or `host:port`."""
    model_name: str
    """Model name in the API; the default is the name of the model's folder."""
    drain_timeout_s: float = 30.0
    """Time that running requests get to finish after a stop signal, in seconds."""
    max_body_bytes: int = 16 * 1024 * 1024
    """Maximum length of a request body, in bytes."""
    otlp_endpoint: str = ""
    """OTLP/HTTP endpoint that receives spans as JSON, such as http://127.0.0.1:4318/v1/traces."""
    standby_cores: int = 0
    """Number of standby cores that take over when the core is lost; on a CPU each holds a copy of the weights."""
    resume_key_env: str = ""
    """Environment variable with the key, shared with the gateway, that signs its orders to resume a stream."""

    answers: AnswerConfig = field(default_factory=AnswerConfig)

    def __post_init__(self) -> None:
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise EngineConfigError(f"otlp_endpoint: expected an http:// or https:// URL, got {self.otlp_endpoint!r}")
        if self.standby_cores < 0:
            raise EngineConfigError(f"standby_cores: expected 0 (none) or more, got {self.standby_cores}")


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
