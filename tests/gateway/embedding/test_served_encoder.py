"""The encoder for clients: limits by input, shorter vectors, loading, and work that ends with its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor

import numpy as np
import pytest

from gateway.embedding import served_encoder
from gateway.embedding.model_files import EncoderUnavailable
from gateway.embedding.onnx_encoder import OnnxEncoder
from gateway.embedding.served_encoder import PIECE_TOKENS, ServedEncoder
from gateway.errors import InvalidRequest, Shed


@pytest.fixture
async def encoder(fp32: OnnxEncoder) -> AsyncIterator[ServedEncoder]:
    async def load(threads: Executor) -> OnnxEncoder:
        return fp32

    served = ServedEncoder(load, num_threads=1, on_failure=lambda error: None)
    served.start()
    while served.state != "ready":
        await asyncio.sleep(0)
    yield served
    await served.aclose()


async def test_vectors_are_the_encoders_own_in_the_order_of_the_inputs(
    encoder: ServedEncoder, fp32: OnnxEncoder
) -> None:
    texts = ["one two three " * 60, "short", "Grüße aus Köln"]
    found = await encoder.vectors(texts, None, "m")

    assert np.abs(found.vectors - fp32.encode(texts)).max() < 1e-6
    assert found.num_tokens == sum(map(len, fp32.rows_of(texts)))


async def test_a_large_batch_is_encoded_in_pieces(encoder: ServedEncoder, fp32: OnnxEncoder) -> None:
    texts = [f"text number {number} of a large batch " * 10 for number in range(70)]
    found = await encoder.vectors(texts, None, "m")

    assert found.num_tokens > 3 * PIECE_TOKENS
    assert np.abs(found.vectors - fp32.encode(texts)).max() < 1e-6


async def test_token_ids_are_read_as_the_models_own_without_marks(encoder: ServedEncoder, fp32: OnnxEncoder) -> None:
    (row,) = fp32.rows_of(["hello world"])
    by_text = await encoder.vectors(["hello world"], None, "m")
    by_tokens = await encoder.vectors([row[1:-1]], None, "m")

    assert np.array_equal(by_text.vectors, by_tokens.vectors)
    assert by_text.num_tokens == by_tokens.num_tokens == len(row)


async def test_shorter_vectors_are_cut_and_have_length_1(encoder: ServedEncoder) -> None:
    whole = (await encoder.vectors(["hello"], None, "m")).vectors[0]
    cut = (await encoder.vectors(["hello"], 100, "m")).vectors[0]

    assert cut.shape == (100,)
    assert np.linalg.norm(cut) == pytest.approx(1, abs=1e-6)
    assert np.allclose(cut, whole[:100] / np.linalg.norm(whole[:100]))


@pytest.mark.parametrize(
    ("inputs", "dimensions", "message", "param", "code"),
    [
        (
            ["a", "word " * 300],
            None,
            "`input[1]` must have at most 256 tokens for 'm'; got 302.",
            "input[1]",
            "context",
        ),
        (["word " * 300], None, "`input` must have at most 256 tokens", "input", "context"),
        ([[1, 2], [30522]], None, "`input[1]` has token 30522;", "input[1]", "invalid_value"),
        (["a"], 385, "`dimensions` must be at most 384 for 'm'; got 385.", "dimensions", "invalid_value"),
    ],
)
async def test_a_refusal_names_the_input_its_size_and_the_limit(
    encoder: ServedEncoder, inputs: list[str | list[int]], dimensions: int | None, message: str, param: str, code: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await encoder.vectors(inputs, dimensions, "m")

    assert caught.value.message.startswith(message)
    assert caught.value.param == param
    assert caught.value.code.startswith(code)


async def test_a_failed_load_is_tried_again_and_requests_meanwhile_are_shed(
    fp32: OnnxEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_encoder, "_RETRY_PAUSES_S", (0.0,))
    failures: list[BaseException] = []
    tries = 0

    async def load(threads: Executor) -> OnnxEncoder:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise EncoderUnavailable("no weights")
        return fp32

    served = ServedEncoder(load, num_threads=1, on_failure=failures.append)
    with pytest.raises(Shed):
        await served.vectors(["a"], None, "m")
    served.start()
    while served.state != "ready":
        await asyncio.sleep(0)
    found = await served.vectors(["a"], None, "m")
    await served.aclose()
    await served.aclose()

    assert found.vectors.shape == (1, 384)
    assert [str(error) for error in failures] == ["no weights"]
    assert served.state != "ready"


async def test_a_request_that_is_called_off_leaves_the_rest_of_its_batch(
    encoder: ServedEncoder, fp32: OnnxEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    loop, first = asyncio.get_running_loop(), asyncio.Event()

    def vectors_of(rows: list[list[int]]) -> object:
        begun.append(len(rows))
        loop.call_soon_threadsafe(first.set)
        return np.zeros((len(rows), 384), np.float32)

    monkeypatch.setattr(fp32, "vectors_of", vectors_of)
    work = asyncio.create_task(encoder.vectors(["word " * 200] * 100, None, "m"))
    await first.wait()
    work.cancel()
    await asyncio.wait({work})
    await encoder.vectors(["one"], None, "m")

    assert len(begun) < 10
