"""Conversion of validated requests to the core's sampling parameters, one set for each choice."""

from __future__ import annotations

from collections.abc import Callable

from engine.frontend.request.errors import context_length_exceeded, invalid_value
from engine.frontend.request.requests import SamplingFields
from engine.protocol import Ready, SamplingParams

_MASK_63 = 2**63 - 1
_MASK_64 = 2**64 - 1


def choice_seed(seed: int, index: int) -> int:
    """Return the 63-bit seed of one choice: the request's own for the first, SplitMix64 mixes for the rest."""
    if index == 0:
        return seed & _MASK_63
    mixed = (seed + index * 0x9E3779B97F4A7C15) & _MASK_64
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return (mixed ^ (mixed >> 31)) & _MASK_63


def choose_max_tokens(num_prompt: int, requested: int | None, max_model_len: int, param: str) -> int:
    """Return the maximum number of output tokens: the requested one, or all that fit without a request.

    Raises:
        ApiError: `context_length_exceeded` (400): the prompt, or the prompt with the requested output, does not fit.
    """
    if num_prompt >= max_model_len:
        raise context_length_exceeded(num_prompt, max_model_len, None, param)
    if requested is None:
        return max_model_len - num_prompt
    if num_prompt + requested > max_model_len:
        raise context_length_exceeded(num_prompt, max_model_len, requested, param)
    return requested


def sampling_params(
    request: SamplingFields,
    ready: Ready,
    *,
    max_tokens: int,
    num_top_logprobs: int | None,
    stop_token_ids: frozenset[int],
    draw_seed: Callable[[], int],
) -> list[SamplingParams]:
    """Return one set of sampling parameters for each choice.

    Raises:
        ApiError: A token id is not in the vocabulary, or `min_tokens` is too large (400).
    """
    logit_bias = {int(key): value for key, value in (request.logit_bias or {}).items()}
    for token_id in logit_bias:
        if token_id >= ready.vocab_size:
            raise invalid_value("logit_bias", f"`logit_bias` must name tokens of the vocabulary; got {token_id}.")
    if (request.min_tokens or 0) > max_tokens:
        raise invalid_value(
            "min_tokens",
            f"`min_tokens` must be at most the {max_tokens} tokens of the answer; got {request.min_tokens}.",
        )
    # Some checkpoints name an end token that is outside the model's vocabulary.
    stops = tuple(sorted(token_id for token_id in stop_token_ids if 0 <= token_id < ready.vocab_size))
    is_first_only = request.top_p == 0  # the smallest nucleus there is: the most likely token
    seed = request.seed if request.seed is not None else draw_seed()
    common = SamplingParams(
        max_tokens=max_tokens,
        temperature=_given(request.temperature, 1.0),
        top_p=1.0 if is_first_only else _given(request.top_p, 1.0),
        top_k=1 if is_first_only else max(request.top_k or 0, 0),
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=_given(request.repetition_penalty, 1.0),
        logit_bias=logit_bias,
        stop_token_ids=() if request.ignore_eos else stops,
        min_tokens=request.min_tokens or 0,
        num_top_logprobs=num_top_logprobs,
    )
    return [_with_seed(common, choice_seed(seed, index)) for index in range(request.num_choices)]


def _given(value: float | None, default: float) -> float:
    return default if value is None else float(value)


def _with_seed(params: SamplingParams, seed: int) -> SamplingParams:
    fields = {name: getattr(params, name) for name in SamplingParams.__struct_fields__}
    return SamplingParams(**{**fields, "seed": seed})
