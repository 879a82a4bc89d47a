"""Settings of one engine: what `penstock engine` takes, resolved once into frozen values."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

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
class CoreConfig:
    """What the core process needs; everything the scheduler, the KV pool and the model runner read."""

    model_dir: Path
    device: Device = "auto"
    """Where the model runs; `auto`: on the first GPU, if there is one."""
    dtype: DType = "auto"
    """`auto`: the checkpoint's dtype on CUDA, float32 on CPU."""
    num_threads: int = 0
    """Threads for torch on CPU; 0: every core this process may use, less one for the front where there are four."""
    quantization: Quantization = "none"
    """What plain weights become at load; with `int8_dynamic` on a CPU, each row of the activations becomes int8 too."""
    kv_dtype: KVDtype = "auto"
    """What the KV pool holds; `auto`: the model's own numbers, of a bfloat16 checkpoint's compiled steps bfloat16."""
    max_model_len: int = 0
    """Most tokens of prompt and answer together; 0: what the model's config says, of a model with two sets of rope
    frequencies as far as the first reaches."""
    block_size: int = 16
    """Tokens in one block of the KV pool."""
    num_blocks: int = 0
    """Blocks in the KV pool; 0: sized from measured memory."""
    kv_memory_bytes: int = 0
    """Upper bound for the KV pool; 0: a share of what is free (see `memory_ratio`)."""
    memory_ratio: float = 0.25
    """Share of the memory still free after the warm-up peak that the KV pool may take (0.9 is usual on a GPU)."""
    max_num_seqs: int = 64
    """Sequences that may be in one step."""
    max_num_batched_tokens: int = 512
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
    enable_prefix_cache: bool = True
    """Whether blocks of earlier prompts are found again by those that begin alike."""
    cuda_graphs: bool = True
    """Whether decode and verification steps are captured on a GPU and replayed as one launch each."""
    compiled_steps: bool = True
    """Whether steps of few tokens of a float32 model run compiled on a CPU, as far as that is measured to be faster."""
    overlap: Overlap = "auto"
    """Whether a step is launched before the last one's tokens are there; `auto`: on a GPU, without speculation."""
    tensor_parallel: int = 1
    """Processes that share every layer; on GPUs one for each."""
    speculation: Speculation = "off"
    """Where drafts come from: lookup in the text itself, the draft model, or whichever pays at the moment (`auto`)."""
    draft_model_dir: Path | None = None
    """A smaller model with the same tokenizer, for `draft` and `auto`."""
    num_speculative_tokens: int = 8
    """Most tokens drafted for one row in one step."""

    def __post_init__(self) -> None:
        for name in (
            "block_size",
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_waiting",
            "num_speculative_tokens",
            "tensor_parallel",
        ):
            if getattr(self, name) < 1:
                raise EngineConfigError(f"{name}: expected a positive integer, got {getattr(self, name)}")
        for name in ("num_threads", "max_model_len", "num_blocks", "kv_memory_bytes"):
            if getattr(self, name) < 0:
                raise EngineConfigError(f"{name}: expected 0 (automatic) or more, got {getattr(self, name)}")
        if self.speculation == "draft" and self.draft_model_dir is None:
            raise EngineConfigError("speculation: draft needs a draft model; name its folder or choose ngram or auto")
        if self.overlap == "on" and self.speculation != "off":
            raise EngineConfigError(
                "overlap: on does not go with speculation, whose drafts need the last step's tokens"
            )
        for name in ("max_queue_wait_s", "max_batch_wait_s", "itl_target_ms"):
            if not getattr(self, name) > 0.0:
                raise EngineConfigError(f"{name}: expected a positive number, got {getattr(self, name)}")
        if not self.prefill_slack_ratio > 1.0:
            raise EngineConfigError(f"prefill_slack_ratio: expected more than 1, got {self.prefill_slack_ratio}")
        if not 0.0 < self.memory_ratio <= 1.0:
            raise EngineConfigError(f"memory_ratio: expected a number in (0, 1], got {self.memory_ratio}")


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
    standby_cores: int = 0
    """Standby cores that take over when the core is lost; on a CPU each holds a copy of the weights."""

    def __post_init__(self) -> None:
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise EngineConfigError(f"otlp_endpoint: expected an http:// or https:// URL, got {self.otlp_endpoint!r}")
        if self.standby_cores < 0:
            raise EngineConfigError(f"standby_cores: expected 0 (none) or more, got {self.standby_cores}")


def parse_config(text: str) -> CoreConfig:
    """The configuration from its JSON form. Raises EngineConfigError naming the field."""

    def decode_path(kind: type, value: Any) -> Path:
        if kind is Path and isinstance(value, str):
            return Path(value)
        raise NotImplementedError(f"no JSON form of {kind.__name__}")

    known = {field.name for field in fields(CoreConfig)}
    try:
        unknown = msgspec.json.decode(text, type=dict[str, Any]).keys() - known
        if unknown:
            raise EngineConfigError(f"--config: unknown settings: {', '.join(sorted(unknown))}")
        return msgspec.json.decode(text, type=CoreConfig, dec_hook=decode_path)
    except msgspec.MsgspecError as error:
        raise EngineConfigError(f"--config: {error}") from error
