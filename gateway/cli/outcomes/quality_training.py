"""`penstock policy train`: from files of prompts with outcomes to the coefficients of one pair of models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.embedding.installed import InstalledEncoder
from gateway.embedding.model_files import EncoderUnavailable
from routing_policies.quality.confidence import TokenOdds
from routing_policies.quality.model import PairModel
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.outcome import PairOutcome, outcome_of
from routing_policies.quality.training.trainer_import import TrainingUnavailable, import_trainer

if TYPE_CHECKING:
    from routing_policies.quality.training.pair_trainer import PairTrainer

MIN_PROMPTS = 200
_BATCH = 16


class TrainingError(ValueError):
    """The data are no use for training; the message has the place and the cause."""


class _Part(msgspec.Struct, frozen=True):
    type: str
    text: str = ""


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | tuple[_Part, ...] | None = ""

    @property
    def text(self) -> str:
        """Return the text, in the form that the gateway reads."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or () if part.type == "text")


class Line(msgspec.Struct, frozen=True):
    """One line of a file: a conversation or a bare prompt, and each model's score in [0, 1]."""

    outcomes: dict[str, float]
    messages: tuple[_Message, ...] = ()
    prompt: str = ""
    category: str = ""
    """The kind of task, where it is known: used for training, never needed for a prediction."""
    logprobs: dict[str, list[float]] = {}
    """Log probabilities of the first tokens of each model's answer, by model; used for cascades."""
    margins: dict[str, list[float]] = {}
    tokens: dict[str, int] = {}

    def as_prompt(self) -> Prompt:
        """Return the prompt in the form that the gateway extracts from a request."""
        prompts = [message.text for message in self.messages if message.role == "user"] or [self.prompt]
        sizes = [len(message.text) for message in self.messages] or [len(self.prompt)]
        return Prompt(
            prompts[-1],
            prompts[-2] if len(prompts) > 1 else "",
            len(prompts),
            sum(sizes),
            bool(self.messages) and self.messages[0].role == "system",
        )

    def check(self) -> None:
        """Raise ValueError where the line has no prompt, or figures that cannot be."""
        if not self.prompt and not any(message.role == "user" for message in self.messages):
            raise ValueError("has neither `prompt` nor a message of the user")
        for name, score in self.outcomes.items():
            if not 0.0 <= score <= 1.0:
                raise ValueError(f"outcomes.{name}: expected a score from 0 to 1, got {score:g}")
        for name, margins in self.margins.items():
            if len(margins) != len(self.logprobs.get(name, [])):
                raise ValueError(f"margins.{name}: expected one for each of its logprobs")

    def as_outcome(self, weak: str, strong: str) -> PairOutcome:
        """Return the outcome of a pair of models; both must have a score."""
        logprobs = self.logprobs.get(weak, [])
        margins = self.margins.get(weak) or [0.0] * len(logprobs)
        odds = tuple(TokenOdds(*pair) for pair in zip(logprobs, margins, strict=True))
        scores = self.outcomes[weak], self.outcomes[strong]
        num_tokens = self.tokens.get(weak, len(odds))
        return outcome_of(self.as_prompt(), *scores, category=self.category, odds=odds, num_tokens=num_tokens)


def read_lines(paths: Sequence[Path]) -> Iterator[Line]:
    """Read every line of every file. Raises TrainingError."""
    decoder = msgspec.json.Decoder(Line)
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise TrainingError(f"{path}: cannot be read: {error}") from None
        for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
            if line.strip():
                try:
                    found = decoder.decode(line)
                    found.check()
                except ValueError as error:
                    raise TrainingError(f"{path}:{number}: {error}") from None
                yield found


class TrainingData(NamedTuple):
    """Prompts with outcomes of both models of a pair."""

    pair: tuple[str, str]
    """Names of the weak and the strong model."""
    lines: list[Line]
    outcomes: list[PairOutcome]
    vectors: NDArray[np.float32] | None
    """Embeddings of the prompts, [n, dimensions], where they are used."""
    encoder: str
    trained_on: str

    def fit(self, rows: NDArray[np.int64] | None = None) -> PairModel:
        """Return the coefficients from these rows, or from all. Raises TrainingError without scikit-learn."""
        chosen = range(len(self.lines)) if rows is None else rows.tolist()
        vectors = self.vectors if self.vectors is None or rows is None else self.vectors[rows]
        weak, strong = self.pair
        trainer = _trainer()([self.outcomes[row] for row in chosen], vectors=vectors)
        return trainer.fit(weak=weak, strong=strong, trained_on=self.trained_on, encoder=self.encoder)


def read_training_data(
    paths: Sequence[Path], weak: str, strong: str, *, encoder_folder: Path | None = None
) -> TrainingData:
    """Return what files hold of a pair; with a folder for the encoder's graph, with embeddings.

    Raises:
        TrainingError: The files are no use for training, or scikit-learn is not installed.
    """
    _trainer()
    lines = [line for line in read_lines(paths) if weak in line.outcomes and strong in line.outcomes]
    if len(lines) < MIN_PROMPTS:
        named = sorted({name for line in read_lines(paths) for name in line.outcomes})
        raise TrainingError(
            f"{len(lines)} prompts have outcomes of both {weak} and {strong}, at least {MIN_PROMPTS} are needed; the "
            f"files have outcomes of {', '.join(named) or 'nobody'}"
        )
    outcomes = [line.as_outcome(weak, strong) for line in lines]
    if all(outcome.good == outcomes[0].good for outcome in outcomes):
        raise TrainingError("every prompt has the same outcome, so there is nothing to fit")
    vectors, encoder = (None, "") if encoder_folder is None else embedded(texts_of(lines), encoder_folder)
    name = ", ".join(path.name for path in paths)
    return TrainingData((weak, strong), lines, outcomes, vectors, encoder, name)


def _trainer() -> type[PairTrainer]:
    try:
        return import_trainer()
    except TrainingUnavailable as error:
        raise TrainingError(str(error)) from error


def report_of(model: PairModel, size: int) -> dict[str, Any]:
    """Summarize the trained model in figures."""
    return {
        "weak": model.weak,
        "strong": model.strong,
        "num_prompts": model.num_prompts,
        "num_words": len(model.text.words),
        "uses_embedding": model.embedded is not None,
        "calibration_error": model.calibration_error,
        "unnamed_calibration_error": model.unnamed_calibration_error,
        "checkpoints": [checkpoint.num_tokens for checkpoint in model.checkpoints],
        "bytes": size,
    }


def texts_of(lines: Sequence[Line]) -> list[str]:
    """Return the text to embed for each line."""
    return [line.as_prompt().text for line in lines]


def embedded(texts: Sequence[str], folder: Path) -> tuple[NDArray[np.float32], str]:
    """Embed the texts; return one vector a text, and the encoder's id. Raises TrainingError."""
    try:
        with ThreadPoolExecutor(1) as thread:
            encoder = asyncio.run(InstalledEncoder(folder, "int8").load(thread))
    except EncoderUnavailable as error:
        raise TrainingError(f"no embeddings: {error}") from error
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # rows of like length waste no padding
    vectors = np.zeros((len(texts), encoder.dimensions), dtype=np.float32)
    for start in range(0, len(order), _BATCH):
        batch = order[start : start + _BATCH]
        vectors[batch] = encoder.encode([texts[index] for index in batch])
    return vectors, encoder.id
