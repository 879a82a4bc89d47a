"""Medusa heads in training: the modules of `engine.models.prediction_heads` with a loss."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from engine.models.prediction_heads import FILE_NAME, HeadWeights

EPSILON = 1e-6
HEAD_WEIGHTS = (1.0, 0.8, 0.6, 0.5)
"""Weight of each head's loss; a wrong token makes the tokens behind it useless."""


class Heads(torch.nn.Module):
    """Heads that predict `num_heads` tokens ahead from a hidden state and the token chosen from it."""

    def __init__(self, embedding: torch.Tensor, *, num_heads: int, width: int) -> None:
        """Create the heads.

        Args:
            embedding: [vocab, hidden], shared with the model and not trained.
            num_heads: Number of tokens to predict.
            width: Inner width.
        """
        super().__init__()
        size = embedding.shape[1]
        self._embedding = embedding.detach()
        self.num_heads = num_heads
        self.hidden_norm = torch.nn.Parameter(torch.ones(size))
        self.token_norm = torch.nn.Parameter(torch.ones(size))
        self.gate_up = torch.nn.Parameter(torch.empty(2 * width, 2 * size).uniform_(-1, 1) / (2 * size) ** 0.5)
        self.down = torch.nn.Parameter(0.02 * torch.randn(num_heads * size, width))
        self.skip = torch.nn.Parameter(torch.full((num_heads, size), 0.1))
        self.norms = torch.nn.Parameter(torch.ones(num_heads, size))

    @property
    def matrices(self) -> list[torch.nn.Parameter]:
        """Parameters that are matrices of a projection."""
        return [self.gate_up, self.down]

    @property
    def vectors(self) -> list[torch.nn.Parameter]:
        """Parameters that are vectors."""
        return [self.hidden_norm, self.token_norm, self.skip, self.norms]

    def forward(self, hidden: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the logits [N, heads, vocab] of hidden states [N, hidden] and the tokens [N] chosen from them."""
        weights = HeadWeights(**dict(self.named_parameters()))
        states = weights.states(hidden.float(), self._embedding[token_ids], EPSILON)
        return functional.linear(states, self._embedding)

    def loss(self, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the weighted loss.

        Args:
            hidden: Hidden states [N, hidden].
            tokens: Chosen token and those after it [N, 1 + heads]; -1 after an answer's end.
        """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self(hidden, tokens[:, 0])
        total = torch.zeros(())
        for head in range(self.num_heads):
            targets = tokens[:, 1 + head]
            loss = functional.cross_entropy(logits[:, head].float(), targets, ignore_index=-1, reduction="sum")
            total = total + HEAD_WEIGHTS[head] * loss / tokens.shape[0]
        return total

    def export(self, folder: Path) -> None:
        """Write the heads into a model's folder, rounded to bfloat16."""
        weights = {name: value.detach().to(torch.bfloat16).contiguous() for name, value in self.named_parameters()}
        save_file(weights, folder / FILE_NAME, metadata={"format": "pt"})

    def read(self, folder: Path) -> None:
        """Load the heads from a folder."""
        self.load_state_dict({name: value.float() for name, value in load_file(folder / FILE_NAME).items()})


class HiddenStateMemory:
    """Ring buffer of hidden states of answers with the tokens that follow them."""

    def __init__(self, capacity: int, hidden_size: int, num_following: int) -> None:
        self._hidden = torch.empty(capacity, hidden_size, dtype=torch.bfloat16)
        self._tokens = torch.empty(capacity, num_following, dtype=torch.int16)
        self._num_seen = 0

    def put(self, hidden: torch.Tensor, tokens: torch.Tensor) -> None:
        """Store states [N, hidden] and tokens [N, following]; the oldest are overwritten first."""
        places = (self._num_seen + torch.arange(hidden.shape[0])) % self._hidden.shape[0]
        self._hidden[places], self._tokens[places] = hidden.bfloat16(), tokens.short()
        self._num_seen += hidden.shape[0]

    def draw(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw `count` entries at random."""
        places = torch.randint(min(self._num_seen, self._hidden.shape[0]), (count,), generator=generator)
        return self._hidden[places], self._tokens[places].long()


def following_tokens(ids: torch.Tensor, is_target: torch.Tensor, count: int) -> torch.Tensor:
    """Return for each target position of [rows, length] the next tokens of its answer [N, count], -1 after its end."""
    rows, columns = is_target.nonzero(as_tuple=True)
    padded = functional.pad(ids, (0, count + 1))
    is_answer = functional.pad(is_target, (0, count + 1))
    parts = [
        torch.where(is_answer[rows, columns + ahead], padded[rows, columns + ahead + 1], -1) for ahead in range(count)
    ]
    found = torch.stack(parts, 1)
    # A later answer of the same conversation does not continue this one.
    return found.masked_fill(found.eq(-1).cumsum(1).bool(), -1)
