"""Frames between the engine's front (HTTP, text) and its core (torch, tokens).

Each frame is one msgpack map with a `type` field, sent as a 4-byte big-endian length and then the body,
over a Unix socket. The front speaks first with nothing: the core connects, reports its phases, then `Ready`.
Token ids cross here; text never does, and neither process imports the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH_BYTES = 4

FinishReason = Literal["stop", "length", "abort", "error"]
"""Why a sequence ended. `abort` was asked for by the front; `error` carries a message."""

AbortState = Literal["queued", "prefill", "decode", "grammar", "preempted"]

Lane = Literal["interactive", "long", "batch"]


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one sequence chooses its tokens; already validated by the front."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps every token."""
    min_p: float = 0.0
    seed: int = 0
    """Always set: the front draws one when the client sent none. The sample at position p depends on (seed, p) only."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    stop_token_ids: tuple[int, ...] = ()
    """Ends the sequence with `stop`; the token itself is reported but is not text."""
    min_tokens: int = 0
    num_top_logprobs: int | None = None
    """None: no logprobs. 0: the chosen token's only. k: and the k most likely ones."""


class Add(msgspec.Struct, frozen=True, kw_only=True, tag="add", omit_defaults=True):
    """Front to core: start one sequence. A request with n choices is n sequences."""

    seq_id: int
    """Chosen by the front, never used twice in one core's life."""
    prompt_token_ids: list[int]
    params: SamplingParams
    lane: Lane = "interactive"
    priority: int = 0
    """Lower goes first inside a lane and is preempted last."""
    cache_salt: bytes = b""
    """Prefix blocks are shared only between sequences with equal salts."""
    deadline_s: float | None = None
    """Seconds from receipt after which nobody waits any more."""
    grammar: str | None = None
    """What the output must follow: llguidance's JSON form (an object with `grammars`). None: anything."""
    is_patient: bool = False
    """Nobody reads its tokens before the last: they may come some milliseconds late, those of several steps at once."""


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag="abort"):
    """Front to core: forget these sequences now. Unknown or finished ids are ignored."""

    seq_ids: list[int]


class TakeOver(msgspec.Struct, frozen=True, kw_only=True, tag="take_over"):
    """Front to core: a standby becomes the core that serves."""

    num_blocks: int = 0
    """Size of the pool of the core before it; 0: measure."""


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Front to core: stop after the running step."""


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log probabilities at one output position."""

    logprob: float
    """Of the chosen token."""
    top: list[tuple[int, float]] = []
    """(token id, logprob), most likely first."""


class StageTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Where one sequence's time went inside the core; sent with its last output."""

    queue_s: float
    prefill_s: float
    decode_s: float
    num_prefill_chunks: int
    num_cached_tokens: int
    num_preemptions: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0


class SeqOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one step made for one sequence."""

    seq_id: int
    token_ids: list[int]
    """One or more, in order; empty only together with a finish reason."""
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None
    fault: Literal["grammar"] | None = None
    """What of the request the error is about, where it is the request's fault."""
    abort_state: AbortState | None = None
    """Where an aborted sequence was."""
    stages: StageTimes | None = None
    """On the last output only."""


class LaneLoad(msgspec.Struct, frozen=True, kw_only=True):
    """How busy one lane is."""

    num_running: int
    num_waiting: int
    waiting_prompt_tokens: int
    """Prompt tokens still to be computed, over waiting and running sequences; expected cache hits do not count."""
    forecast_wait_s: float
    """How long a short request of this lane that arrives now is expected to wait for its first chunk."""
    expected_output_tokens: int = 0
    """Tokens its sequences, waiting and running, are expected to add."""
    prefill_tokens_per_s: float = 0.0
    """How fast a prompt of this lane is computed when it has the step's room for prompts; 0: not known."""


class StepTimeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The core's model of a step's duration, fitted while it runs: each term in seconds for one of its units."""

    fixed_s: float
    row_s: float
    """For each decoding row."""
    prefill_token_s: float
    """For each token of a prompt's chunk."""
    kv_token_s: float
    """For each position attended to, summed over rows."""
    pair_s: float
    """For each chunk token and position that its chunk reaches."""
    chunk_s: float
    """For each chunk."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How busy the core is, as of the end of a step."""

    num_running: int
    num_waiting: int
    num_blocks_total: int
    num_blocks_free: int
    """Blocks nobody uses, cached ones included."""
    num_blocks_cached: int
    """Unused blocks that still hold a reusable prefix."""
    num_blocks_leaked: int
    """Blocks that are neither free nor owned by a live sequence. Must be 0."""
    step_s: float
    """Duration of the last step."""
    num_step_tokens: int
    max_num_rows: int = 0
    """Most rows a step can have."""
    waiting_prompt_tokens: int = 0
    """Prompt tokens still to be computed, over waiting and running sequences; expected cache hits do not count."""
    expected_output_tokens: int = 0
    """Tokens that waiting and running sequences are expected to add."""
    drain_tokens_per_s: float = 0.0
    """Recent rate at which tokens (prompt and output) are computed."""
    forecast_wait_s: float = 0.0
    """How long a short interactive request that arrives now is expected to wait for its first chunk."""
    num_kv_tokens: int = 0
    """Tokens of live sequences whose keys and values are in the pool; those in shared blocks count for each."""
    step_time: StepTimeTerms | None = None
    """None until enough steps were seen."""
    lanes: dict[Lane, LaneLoad] = {}
    """Empty until the core is ready."""


class Counters(msgspec.Struct, kw_only=True):
    """Monotonic totals of the core's life."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    steps: int = 0


class StepReport(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """Core to front: the outputs of one step (possibly none) and the load after it."""

    outputs: list[SeqOutput]
    load: Load
    tells_load: bool = True
    """Whether the load was put together for this report, all messages that came before included; otherwise most of it
    is a few milliseconds old."""
    counters: Counters
    freed: list[tuple[int, AbortState, float]] = []
    """Aborts carried out since the last report: (seq_id, state it was in, seconds from receipt to blocks free)."""


class Phase(msgspec.Struct, frozen=True, kw_only=True, tag="phase"):
    """Core to front: a start-up phase ended (`import`, `weights`, `kv_pool`, `warm_up`)."""

    name: str
    seconds: float


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Core to front: weights are loaded and the warm-up ran."""

    max_model_len: int
    """Longest prompt plus output, in tokens, that one sequence may reach (model and KV pool both considered)."""
    block_size: int
    num_blocks: int
    vocab_size: int
    device: str
    dtype: str
    model_type: str
    speculates: bool = False
    """Whether steps may verify drafted tokens."""
    step_token_budget: int = 0
    """Most tokens in one step."""
    load: Load | None = None
    """Before the first step: what the warm-up taught."""


class StandingBy(msgspec.Struct, frozen=True, tag="standing_by"):
    """Core to front: a standby has done what can be done before it is needed, and waits for `TakeOver`."""


class Fatal(msgspec.Struct, frozen=True, kw_only=True, tag="fatal"):
    """Core to front: the core cannot go on; the process ends after this frame."""

    message: str
    is_settings: bool = False
    """Whether a setting or the checkpoint is at fault, so that another core would end the same way."""


ToCore = Add | Abort | TakeOver | Shutdown
ToFront = StepReport | Phase | Ready | StandingBy | Fatal

_encoder = msgspec.msgpack.Encoder()
_to_core: msgspec.msgpack.Decoder[ToCore] = msgspec.msgpack.Decoder(ToCore)
_to_front: msgspec.msgpack.Decoder[ToFront] = msgspec.msgpack.Decoder(ToFront)


class FrameError(ValueError):
    """The peer sent something that is not a frame."""


def encode_frame(message: ToCore | ToFront) -> bytes:
    """The message as one length-prefixed frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def decode_to_core(body: bytes) -> ToCore:
    """A frame's body as a message for the core. Raises FrameError."""
    try:
        return _to_core.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"bad frame from the front: {error}") from error


def decode_to_front(body: bytes) -> ToFront:
    """A frame's body as a message for the front. Raises FrameError."""
    try:
        return _to_front.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"bad frame from the core: {error}") from error


class FrameSplitter:
    """Cuts a byte stream into frame bodies; sans-I/O, any chunking."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield every body that is complete with `data`. Raises FrameError on an absurd length."""
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
