"""Request service below the HTTP layer: parsed requests in, generations out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import count
from typing import Literal, TypeVar

from engine.config import FrontConfig
from engine.frontend.core_client.generation import EnginePrompt, Generation
from engine.frontend.core_client.link import CoreLink, CoreState
from engine.frontend.core_client.metrics import EngineMetrics
from engine.frontend.fields.faults import FieldRefusal
from engine.frontend.request.errors import (
    ApiError,
    context_length_exceeded,
    invalid_value,
    overloaded_error,
    resume_mismatch,
    unsupported,
)
from engine.frontend.request.headers import RequestOptions
from engine.frontend.request.requests import ChatBody, CompletionRequest
from engine.frontend.request.unserved import adapter_of
from engine.frontend.resume.resume_request import BEGUN_CHOICES, DIGEST_CHARS, ResumeRequest
from engine.frontend.text.handling import ChatPrompt, TextHandling
from engine.frontend.text.sampling import choice_seed, choose_max_tokens, sampling_params
from engine.frontend.tools.grammar import Grammar
from engine.frontend.tools.reasoning_format import ReasoningStart
from engine.protocol import Ready, SamplingParams

_T = TypeVar("_T")
_Result = TypeVar("_Result")

_NO_TOOLS = "`tools` is not supported by this engine: the model's chat template has no tools."
ServiceState = CoreState | Literal["warming", "draining"]

CHARS_PER_TURN = 16
"""Estimated characters of template text around each message."""
INLINE_CHARS = 4096
"""Maximum number of characters that is rendered and tokenized on the event loop; longer prompts use a thread."""
INLINE_TOKENS = 1024
"""Maximum number of tokens whose text is decoded on the event loop."""


class EngineService:
    """Service that turns requests into generations; it refuses new ones while `is_draining`."""

    def __init__(
        self,
        config: FrontConfig,
        text: TextHandling,
        link: CoreLink,
        metrics: EngineMetrics,
        executor: Executor,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        self.config = config
        self.tokenizer = text.tokenizer
        self.link = link
        self.metrics = metrics
        self.clock = clock
        self.is_draining = False
        self.is_closing = False
        """True once the drain has ended; load feeds stop then."""
        self.movable: set[Generation] = set()
        """Running streams that the gateway continues elsewhere if this engine drains."""
        self.text = text
        self._executor = executor
        self._draw_seed = draw_seed

    @property
    def is_ready(self) -> bool:
        """True if requests are served."""
        return self.link.state == "ready" and not self.is_draining

    @property
    def state(self) -> ServiceState:
        """State for health probes; `warming`: weights are loaded, the KV pool and the warm-up are not done."""
        if self.is_draining:
            return "draining"
        if self.link.state == "starting" and any(phase.name == "weights" for phase in self.link.phases):
            return "warming"
        return self.link.state

    def drain(self) -> None:
        """Refuse new requests from now on; running ones continue, those of `movable` at other engines."""
        self.is_draining = True
        for generation in list(self.movable):
            generation.hand_over()
        self.link.wake_watchers()

    def close(self) -> None:
        """End the running requests with an error, and the load feeds."""
        self.is_closing = True
        self.link.fail_all(overloaded_error("The engine shut down before the answer was complete.", reason="draining"))
        self.link.wake_watchers()

    async def chat(
        self, request: ChatBody, options: RequestOptions, received_at: float, resume: ResumeRequest | None = None
    ) -> Generation:
        """Return a generation, not started yet, that answers a conversation, or continues the answer to one.

        Raises:
            ApiError: The engine cannot serve, or the request is wrong.
        """
        started_at = self.clock()
        self._adapter(request)
        prompt = await self._chat_prompt(request)
        grammar = self.text.grammar(request, prompt.start)
        prediction = None if request.prediction is None else await self._predicted_tokens(request.prediction.text)
        tokenize_s = self.clock() - started_at
        generation = self._generation(
            request, [prompt.token_ids], options, received_at, tokenize_s, grammar, prompt.start, resume, prediction
        )
        if resume is not None:
            self._continue(generation, resume, has_logprobs=request.num_top_logprobs is not None)
        return generation

    def answer_digest(self, generation: Generation) -> str:
        """Return `NUMBERS;DIGEST;PROCESSOR`, which two engines share if their answers have the same tokens.

        NUMBERS is `exact` where that holds behind resumed tokens too, else `close`. DIGEST covers model and prompt.
        Engines that differ in the others alone may continue each other's streams with close numbers.
        """
        ready = self._ready()
        prompts = b"\n".join(array("q", token_ids).tobytes() for token_ids in generation.prompt.prompts)
        digest = hashlib.sha256(ready.fingerprint.encode() + b"\n" + prompts).hexdigest()[:DIGEST_CHARS]
        return f"{'exact' if ready.resumes_exactly else 'close'};{digest};{ready.processor}"

    def model_state(self, adapter: str | None) -> str:
        """Return what the engine states of the model behind an answer: `MODEL;QUANTIZATION;TEMPLATE;ENGINE`.

        MODEL is followed by the digest of the adapter that computes the answer, if one does. ENGINE is the beginning of
        the digest that also covers libraries and machine.
        """
        ready = self._ready()
        model, _, others = ready.model_state.partition(";")
        added = "" if adapter is None else self.link.adapters.digest_of(adapter)
        return f"{model}{added};{others};{ready.fingerprint[:DIGEST_CHARS]}"

    def _continue(self, generation: Generation, resume: ResumeRequest, *, has_logprobs: bool) -> None:
        """Bring a generation to the state behind the tokens of `resume`.

        Raises:
            ApiError: This engine would not generate those tokens (409), or they cannot be continued (400).
        """
        if resume.digest is not None and _model_of(resume.digest) != _model_of(self.answer_digest(generation)):
            raise resume_mismatch()
        for choice, params in zip(generation.choices, generation.params, strict=True):
            begun = resume.choices.get(choice.index)
            if begun is not None:
                self._check_tokens(begun.token_ids, self._ready(), BEGUN_CHOICES)
                choice.replay(begun.token_ids, begun.finish, has_logprobs=has_logprobs)
            if choice.finish is None:
                choice.unreported = []
                if choice.has_open_logprobs or (begun is not None and len(begun.token_ids) >= params.max_tokens):
                    raise _not_a_beginning()
        if generation.is_done:
            raise _not_a_beginning()

    async def complete(
        self,
        request: CompletionRequest,
        options: RequestOptions,
        received_at: float,
        resume: ResumeRequest | None = None,
    ) -> Generation:
        """Return a generation, not started yet, that continues raw prompts, or goes on with their answers.

        Raises:
            ApiError: The engine cannot serve, or the request is wrong.
        """
        started_at = self.clock()
        self._adapter(request)
        prompts = [await self._tokenize_prompt(prompt) for prompt in request.prompts]
        tokenize_s = self.clock() - started_at
        generation = self._generation(request, prompts, options, received_at, tokenize_s, resume=resume)
        if resume is not None:
            self._continue(generation, resume, has_logprobs=request.num_top_logprobs is not None)
        return generation

    async def _tokenize_prompt(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, str):
            return await self.tokenize_text(prompt)
        self._check_tokens(prompt, self._ready(), "prompt")
        return prompt

    async def tokenize_chat(self, request: ChatBody) -> list[int]:
        """Return the tokens of a conversation, rendered with the chat template.

        Raises:
            ApiError: The engine cannot serve, or the request is wrong.
        """
        return (await self._chat_prompt(request)).token_ids

    async def _chat_prompt(self, request: ChatBody) -> ChatPrompt:
        ready = self._ready()
        if request.tool_use is not None and self.text.tool_format is None:
            raise unsupported(FieldRefusal("tools", _NO_TOOLS))
        num_chars = sum(message.num_chars for message in request.messages)
        if request.tool_use is not None:
            num_chars += len(json.dumps([tool.as_json() for tool in request.tool_use.tools], ensure_ascii=False))
        self._check_chars(num_chars, ready, "messages")
        if not request.tools and num_chars + CHARS_PER_TURN * len(request.messages) <= INLINE_CHARS:
            return self.text.chat_prompt(request)
        return await self._off_loop(self.text.chat_prompt, request)

    async def _predicted_tokens(self, text: str) -> list[int]:
        """Return the tokens of a predicted answer, as many as the context holds; none where no step verifies drafts."""
        ready = self._ready()
        if not ready.speculates:
            return []
        if self.tokenizer.max_chars_per_token is not None:
            text = text[: ready.max_model_len * self.tokenizer.max_chars_per_token]
        encode = self.tokenizer.encode_bare
        token_ids = encode(text) if len(text) <= INLINE_CHARS else await self._off_loop(encode, text)
        return token_ids[: ready.max_model_len]

    async def tokenize_text(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a raw prompt, by default with the model's start tokens.

        Raises:
            ApiError: The engine cannot serve, or the prompt cannot fit into the context.
        """
        self._check_chars(len(text), self._ready(), "prompt")
        encode = self.tokenizer.encode_text if add_special_tokens else self.tokenizer.encode_bare
        return encode(text) if len(text) <= INLINE_CHARS else await self._off_loop(encode, text)

    async def detokenize(self, token_ids: list[int]) -> str:
        """Return the text of tokens, special ones included.

        Raises:
            ApiError: The engine cannot serve, or a token is not in the vocabulary.
        """
        self._check_tokens(token_ids, self._ready(), "tokens")
        if len(token_ids) <= INLINE_TOKENS:
            return self.tokenizer.decode(token_ids)
        return await self._off_loop(self.tokenizer.decode, token_ids)

    @property
    def max_model_len(self) -> int:
        """Context length in tokens. Raises ApiError while the engine cannot serve."""
        return self._ready().max_model_len

    def _ready(self) -> Ready:
        if self.is_draining:
            raise overloaded_error("The engine is shutting down.", reason="draining")
        if self.link.ready is None:
            raise overloaded_error(f"The engine is not ready (core {self.link.state}).", reason="overload")
        return self.link.ready

    def _adapter(self, request: ChatBody | CompletionRequest) -> str | None:
        """Return the adapter that the request names; None for the base model. Raises ApiError if it is not loaded."""
        adapter = adapter_of(request.model, self.config)
        if adapter is not None:
            self._ready()
            self.link.adapters.check(adapter, request.model)
        return adapter

    def _check_chars(self, num_chars: int, ready: Ready, param: str) -> None:
        """Refuse a prompt with more characters than the model's context can hold, without tokenizing it."""
        most = self.tokenizer.max_chars_per_token
        if most is not None and num_chars > ready.max_model_len * most:
            raise context_length_exceeded(-(-num_chars // most), ready.max_model_len, None, param, is_at_least=True)

    def _check_tokens(self, token_ids: Sequence[int], ready: Ready, param: str) -> None:
        largest = max(token_ids, default=0)
        if largest >= ready.vocab_size:
            raise invalid_value(param, f"`{param}` must have tokens of the vocabulary; got {largest}.")

    async def _off_loop(self, convert: Callable[[_T], _Result], argument: _T) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, convert, argument)

    def _generation(
        self,
        request: ChatBody | CompletionRequest,
        prompts: list[list[int]],
        options: RequestOptions,
        received_at: float,
        tokenize_s: float,
        grammar: Grammar | None = None,
        start: ReasoningStart = "behind",
        resume: ResumeRequest | None = None,
        prediction: list[int] | None = None,
    ) -> Generation:
        draw_seed = self._draw_seed if resume is None else _seeds_from(resume.seed, request.num_choices)
        params = [param for token_ids in prompts for param in self._params(request, len(token_ids), draw_seed)]
        longest = max(map(len, prompts))
        prompt = EnginePrompt(
            prompts=prompts,
            lane=options.lane(longest),
            cache_salt=options.cache_salt,
            deadline_s=options.deadline_s,
            received_at=received_at,
            tokenize_s=tokenize_s,
            grammar=grammar,
            may_reason=isinstance(request, ChatBody) and self.text.shows_reasoning_apart,
            # A stop string must be found as soon as its last token arrives.
            is_patient=not request.stream and not request.stops,
            adapter=self._adapter(request),
            begun={} if resume is None else {index: one.token_ids for index, one in resume.choices.items()},
            prediction=prediction,
        )
        stop_token_ids = frozenset() if request.ignore_eos else self.tokenizer.stop_token_ids
        use = request.tool_use if isinstance(request, ChatBody) else None
        hides_reasoning = isinstance(request, ChatBody) and request.hides_reasoning
        choices = [
            self.text.choice(index, request.stops, stop_token_ids, use, start, hides_reasoning=hides_reasoning)
            for index in range(len(params))
        ]
        metrics = self.metrics.for_request(longest, prompt.lane)
        return Generation(self.link, prompt, params, choices, metrics, self.clock)

    def _params(
        self, request: ChatBody | CompletionRequest, num_tokens: int, draw_seed: Callable[[], int]
    ) -> list[SamplingParams]:
        """Return the sampling parameters of each choice of a prompt."""
        ready = self._ready()
        param = "messages" if isinstance(request, ChatBody) else "prompt"
        return sampling_params(
            request,
            ready,
            max_tokens=choose_max_tokens(num_tokens, request.output_limit, ready.max_model_len, param),
            num_top_logprobs=request.num_top_logprobs,
            stop_token_ids=self.tokenizer.stop_token_ids,
            draw_seed=draw_seed,
        )


def _seeds_from(seed: int, num_choices: int) -> Callable[[], int]:
    """Return a source of seeds, one for each prompt with so many choices; the first is `seed` itself."""
    return partial(next, map(partial(choice_seed, seed), count(step=num_choices)))


def _not_a_beginning() -> ApiError:
    return invalid_value(BEGUN_CHOICES, f"`{BEGUN_CHOICES}` must be the beginning of an unfinished answer.")


def _model_of(digest: str) -> str:
    """Return the part of an answer's digest that covers model and prompt."""
    return digest.partition(";")[2].partition(";")[0]
