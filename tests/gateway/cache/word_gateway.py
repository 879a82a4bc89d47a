"""`penstock gateway` whose semantic cache has the encoder of words: for tests that kill the process.

python -m tests.gateway.cache.word_gateway [flags of `penstock gateway`]
"""

from __future__ import annotations

import sys
from concurrent.futures import Executor
from functools import partialmethod

from gateway.app.app import Gateway
from gateway.cache.audit.match_models import MatchModels
from gateway.cli.main import main
from gateway.embedding.encoder import TextEncoder
from tests.gateway.cache.word_encoder import NearMatchModel, WordEncoder


class SteadyMatchModel(NearMatchModel):
    """It serves as many similar answers after wrong ones as before."""

    def threshold(self, max_error_ratio: float, *, tightening: float = 0.0) -> float:
        return 0.75


async def _load(thread: Executor) -> TextEncoder:
    return await WordEncoder().load(thread)


if __name__ == "__main__":
    models = MatchModels(first=SteadyMatchModel(), encoder_id=None, learn=lambda samples: SteadyMatchModel())
    Gateway.__init__ = partialmethod(Gateway.__init__, load_encoder=_load, match_models=models)  # type: ignore[method-assign,assignment]
    sys.exit(main(["gateway", *sys.argv[1:]]))
