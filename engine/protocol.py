"""Frames between the engine's front (HTTP, text) and its core (torch, tokens).

Each frame is one msgpack map with a `type` field, sent over a Unix socket behind a 4-byte big-endian length.
The core connects, reports its start-up phases and then `Ready`; the front sends nothing before that.
Frames carry token ids and never text. Neither process imports the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH_BYTES = 4

FinishReason = Literal["stop", "length", "abort", "error"]
"""Reason for the end of a sequence. The front requests `abort`; `error` carries a message."""

AbortState = Literal["queued", "prefill", "decode", "grammar", "preempted"]

Lane = Literal["interactive", "long", "batch"]


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling parameters of one sequence, already validated by the front."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """Number of most likely tokens to keep; 0 keeps every token."""
    min_p: float = 0.0
    seed: int = 0
    """Seed of the sampler, always set: the front draws one when the client sends none.

    The sample at position p depends on (seed, p) only.
    """
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the sequence with `stop`. The token itself is reported but is not text."""
    min_tokens: int = 0
    num_top_logprobs: int | None = None
    """Number of alternatives per token. None: no logprobs; 0: the chosen token's only; k: also the k most likely ones.
    """


class Add(msgspec.Struct, frozen=True, kw_only=True, tag="add", omit_defaults=True):
    """Request from front to core to start one sequence. A request with n choices is n sequences."""

    seq_id: int
    """Id chosen by the front, unique in one core's life."""
    prompt_token_ids: list[int]
    params: SamplingParams
    lane: Lane = "interactive"
    priority: int = 0
    """Rank inside a lane: a lower number goes first and is preempted last."""
    cache_salt: bytes = b""
    """Salt of the prefix cache: only sequences with equal salts share blocks."""
    deadline_s: float | None = None
    """Seconds from receipt to the request's deadline; None: no deadline."""
    grammar: str | None = None
    """Grammar of the output in llguidance's JSON form (an object with `grammars`). None: no constraint."""
    is_patient: bool = False
    """True if no client reads tokens before the last, so outputs of several steps may be sent together."""
    adapter: str | None = None
    """Name of a loaded adapter; None: the base model."""
    output_token_ids: list[int] = []
    """Output that another engine has generated already; the sequence continues behind it."""
    prediction_token_ids: list[int] = []
    """Tokens that the answer may have, for draft tokens; empty: none."""


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag="abort"):
    """Request from front to core to drop these sequences now. The core ignores unknown and finished ids."""

    seq_ids: list[int]


class LoadAdapter(msgspec.Struct, frozen=True, kw_only=True, tag="load_adapter"):
    """Request from front to core to load an adapter; an `AdapterReport` answers it."""

    name: str
    path: str
    """Folder of the adapter."""


class UnloadAdapter(msgspec.Struct, frozen=True, kw_only=True, tag="unload_adapter"):
    """Request from front to core to unload an adapter once no sequence uses it; an `AdapterReport` answers it."""

    name: str
    deadline_s: float
    """Seconds that running sequences of the adapter get to finish; the core then ends them."""


class TakeOver(msgspec.Struct, frozen=True, kw_only=True, tag="take_over"):
    """Request from front to core that makes a standby the serving core."""

    num_blocks: int = 0
    """Number of KV blocks of the lost core's pool; 0: measure the memory."""


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Request from front to core to stop after the running step."""


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log probabilities at one output position."""

    logprob: float
    """Log probability of the chosen token."""
    top: list[tuple[int, float]] = []
    """Alternatives as (token id, logprob), most likely first."""


class StageTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one sequence in each stage inside the core, sent with its last output."""

    queue_s: float
    prefill_s: float
    decode_s: float
    num_prefill_chunks: int
    num_cached_tokens: int
    num_preemptions: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_prediction_tokens: int = 0
    """Draft tokens from the request's prediction that the answer has."""
    num_rejected_prediction_tokens: int = 0
    """Draft tokens from the request's prediction that a step verified and the answer does not have."""


class SeqOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Output of one step for one sequence."""

    seq_id: int
    token_ids: list[int]
    """New tokens in order; empty only together with a finish reason."""
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None
    fault: Literal["grammar"] | None = None
    """Part of the request that caused `error`; None if the request is not at fault."""
    abort_state: AbortState | None = None
    """Stage of an aborted sequence at its abort."""
    stages: StageTimes | None = None
    """Stage times; only on the last output."""


class LaneLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load of one lane."""

    num_running: int
    num_waiting: int
    waiting_prompt_tokens: int
    """Prompt tokens still to be computed, over waiting and running sequences, without expected cache hits."""
    forecast_wait_s: float
    """Expected wait of a short request that arrives now in this lane until its first chunk, in seconds."""
    expected_output_tokens: int = 0
    """Expected number of further output tokens of the lane's waiting and running sequences."""
    prefill_tokens_per_s: float = 0.0
    """Prefill rate of this lane's prompts when they get the whole prefill budget of a step; 0: unknown."""


class StepTimeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of the fitted step-time model, each in seconds per unit.

    The core fits them while it runs (see `engine.forecast.step_time`).
    """

    fixed_s: float
    row_s: float
    """Time per decoding sequence."""
    prefill_token_s: float
    """Time per token of a prompt's chunk."""
    kv_token_s: float
    """Time per attended position, summed over sequences."""
    pair_s: float
    """Time per pair of a chunk's token and a position that the chunk attends to."""
    chunk_s: float
    """Time per chunk."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Load of the core at the end of a step."""

    num_running: int
    num_waiting: int
    num_blocks_total: int
    num_blocks_free: int
    """Unused blocks, cached ones included."""
    num_blocks_cached: int
    """Unused blocks that still hold a reusable prefix."""
    num_blocks_leaked: int
    """Blocks that are neither free nor owned by a live sequence. Must be 0."""
    step_s: float
    """Duration of the last step, in seconds."""
    num_step_tokens: int
    max_num_seqs: int = 0
    """Maximum number of sequences in a step."""
    waiting_prompt_tokens: int = 0
    """Prompt tokens still to be computed, over waiting and running sequences, without expected cache hits."""
    expected_output_tokens: int = 0
    """Expected number of further output tokens of waiting and running sequences."""
    drain_tokens_per_s: float = 0.0
    """Recent rate of computed tokens, prompt and output together."""
    forecast_wait_s: float = 0.0
    """Expected wait of a short interactive request that arrives now until its first chunk, in seconds."""
    num_kv_tokens: int = 0
    """Tokens of live sequences with keys and values in the pool; a shared block counts for each of its sequences."""
    step_time: StepTimeTerms | None = None
    """Fitted step-time model; None until enough steps have run."""
    lanes: dict[Lane, LaneLoad] = {}
    """Load by lane; empty until the core is ready."""


class Counters(msgspec.Struct, kw_only=True):
    """Monotonic totals since the core started."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    steps: int = 0
    adapter_steps: int = 0
    """Steps with sequences that use adapters."""


class AdapterReport(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the core to `LoadAdapter` or `UnloadAdapter`."""

    name: str
    change: Literal["loaded", "unloaded", "refused"]
    error: str | None = None
    """Reason of a refusal."""
    digest: str = ""
    """Digest of the files of a loaded adapter."""


class StepReport(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """Report from core to front: the outputs of one step (possibly none) and the load after it."""

    outputs: list[SeqOutput]
    load: Load
    has_load: bool = True
    """True if the load was computed for this report and includes all messages received before.

    Otherwise most of it is a few milliseconds old.
    """
    counters: Counters
    freed: list[tuple[int, AbortState, float]] = []
    """Aborts carried out since the last report: (seq_id, state at the abort, seconds from receipt to blocks free)."""
    adapters: list[AdapterReport] = []
    """Changes of adapters since the last report."""


class Phase(msgspec.Struct, frozen=True, kw_only=True, tag="phase"):
    """Report from core to front that a start-up phase ended (`import`, `weights`, `kv_pool`, `warm_up`)."""

    name: str
    seconds: float


class Compiling(msgspec.Struct, frozen=True, tag="compiling"):
    """Report from core to front of what Numba compiles or loads from now on.

    A compiler that crashes ends the core without another frame.
    """

    what: str
    """Name of the function or module; empty: nothing any more."""


class CpuKernels(msgspec.Struct, frozen=True, kw_only=True):
    """How a CPU computes the steps of a model."""

    steps: Literal["compiled", "torch"]
    reason: str = ""
    """Reason for steps in torch; empty if they run compiled."""
    products: str = ""
    """Number of projections by the kind of their products, for people."""
    kv_dtype: str = ""
    """Dtype of the KV pool."""
    num_threads: int = 0
    processor: str = ""
    """Processor that steps are compiled for, with its features; another one may add numbers in another order."""
    uses_matrix_unit: bool = False
    """True if long parts of prompts run on a unit that rounds in its own way, and short ones do not."""

    @property
    def resumes_exactly(self) -> bool:
        """True if a token gets the same bits wherever its prompt is cut into parts."""
        return self.steps == "compiled" and not self.uses_matrix_unit

    def summary(self) -> str:
        """Return one line for the log."""
        steps = f"compiled steps ({self.products})" if self.steps == "compiled" else f"steps in torch: {self.reason}"
        unit = "; prompts on the matrix unit, so resumed streams get close numbers" if self.uses_matrix_unit else ""
        return f"CPU kernels: {steps}{unit}; KV pool in {self.kv_dtype}; {self.num_threads} threads"


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Report from core to front that the weights are loaded and the warm-up ran."""

    max_model_len: int
    """Maximum number of prompt and output tokens of one sequence, limited by the model and by the KV pool."""
    block_size: int
    num_blocks: int
    vocab_size: int
    device: str
    dtype: str
    model_type: str
    speculates: bool = False
    """True if steps may verify draft tokens."""
    max_num_batched_tokens: int = 0
    """Maximum number of tokens in one step."""
    num_threads: int = 0
    """Number of threads that compute, over all processes of the model; 0 on a GPU."""
    cpu_kernels: CpuKernels | None = None
    """Computation of the steps on a CPU; None on a GPU."""
    load: Load | None = None
    """Load before the first step, with the forecasts that the warm-up measured."""
    max_loras: int = 0
    """Maximum number of adapters in memory."""
    adapters: dict[str, str] = {}
    """Adapters that were loaded at the start, by name, with the digest of their files."""
    fingerprint: str = ""
    """Digest of the weights and of how they are computed; engines that share it generate the same tokens."""
    model_state: str = ""
    """Digest of the model, its quantization and a digest of its chat template, as an answer's header states them."""
    resumes_exactly: bool = False
    """True if tokens behind resumed output have the same bits as behind output of the same processor."""
    processor: str = ""
    """Digest of the processor that steps are compiled for; engines share their bits where it is the same too."""


class StandingBy(msgspec.Struct, frozen=True, tag="standing_by"):
    """Report from core to front that a standby has done all possible preparation and waits for `TakeOver`."""


class Fatal(msgspec.Struct, frozen=True, kw_only=True, tag="fatal"):
    """Report from core to front of an unrecoverable error; the process ends after this frame."""

    message: str
    is_settings: bool = False
    """True if a setting or the checkpoint is at fault, so that a new core would fail too."""


ToCore = Add | Abort | LoadAdapter | UnloadAdapter | TakeOver | Shutdown
ToFront = StepReport | Phase | Compiling | Ready | StandingBy | Fatal

_encoder = msgspec.msgpack.Encoder()
_to_core: msgspec.msgpack.Decoder[ToCore] = msgspec.msgpack.Decoder(ToCore)
_to_front: msgspec.msgpack.Decoder[ToFront] = msgspec.msgpack.Decoder(ToFront)


class FrameError(ValueError):
    """Bytes from the peer that are not a valid frame."""


def encode_frame(message: ToCore | ToFront) -> bytes:
    """Encode a message as one length-prefixed frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def decode_to_core(body: bytes) -> ToCore:
    """Decode a frame's body as a message for the core.

    Raises:
        FrameError: The body is not such a message.
    """
    try:
        return _to_core.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"bad frame from the front: {error}") from error


def decode_to_front(body: bytes) -> ToFront:
    """Decode a frame's body as a message for the front.

    Raises:
        FrameError: The body is not such a message.
    """
    try:
        return _to_front.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"bad frame from the core: {error}") from error


class FrameSplitter:
    """Incremental splitter of a byte stream into frame bodies; performs no I/O and accepts any chunking."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield every frame body that `data` completes.

        Raises:
            FrameError: A frame is longer than `MAX_FRAME_BYTES`.
        """
        self._buffer += data
        while len(self._buffer) >= _LENGTH_BYTES:
            length = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"frame of {length} bytes exceeds the limit of {MAX_FRAME_BYTES}")
            end = _LENGTH_BYTES + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH_BYTES:end])
            del self._buffer[:end]
            yield body
