"""Batches of conversations, with the loss on the assistant's tokens."""

from __future__ import annotations

import torch

from engine.training import tokenizer
from engine.training.batches import LENGTH_BANDS, Batches, Encoder
from engine.training.data.generator import MIXES, stream
from tests.engine.training.test_tokenizer import TOKENIZER


def test_the_loss_is_on_assistant_tokens_only() -> None:
    example = next(e for e in stream(1, "train", MIXES["large"]) if e.task == "followup" and len(e.messages) == 3)
    (ids, targets), *_ = Encoder(TOKENIZER).encode([example])
    learned = [ids[index + 1] for index, is_target in enumerate(targets) if is_target]
    text = f"{example.messages[1]['content']}{tokenizer.IM_END}{example.answer}{tokenizer.IM_END}"
    assert TOKENIZER.decode(learned, skip_special_tokens=False) == text


def batches(seed: int = 3) -> Batches:
    return Batches(Encoder(TOKENIZER), lambda _step: MIXES["shared"], seed, step_tokens=1500)


def test_a_step_is_a_function_of_seed_and_step() -> None:
    first, again, other, reseeded = batches().at(4), batches().at(4), batches().at(5), batches(seed=8).at(4)
    assert all(torch.equal(one.ids, two.ids) for one, two in zip(first, again, strict=True))
    for different in (other, reseeded):
        assert [batch.ids.shape for batch in different] != [batch.ids.shape for batch in first]


def test_a_step_has_its_tokens_in_batches_of_similar_lengths() -> None:
    encoder, found = Encoder(TOKENIZER), batches().at(0)
    assert sum(int((batch.ids != encoder.pad).sum()) for batch in found) >= 1500
    for batch in found:
        lengths = (batch.ids != encoder.pad).sum(1)
        bands = {next(band for band in LENGTH_BANDS if length <= band) for length in lengths.tolist()}
        assert len(bands) == 1
        assert int(lengths.max()) == batch.ids.shape[1]


def test_padding_is_never_learned() -> None:
    encoder = Encoder(TOKENIZER)
    for batch in batches().at(1):
        targets = torch.roll(batch.ids, -1, dims=1)[batch.is_target]
        assert len(targets) > 0
        assert not (targets == encoder.pad).any()
