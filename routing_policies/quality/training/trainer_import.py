"""The import of the trainer: scikit-learn is the extra `learning`, which a gateway that only predicts can omit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from routing_policies.quality.training.pair_trainer import PairTrainer


class TrainingUnavailable(ImportError):
    """Training is impossible here; the message names the missing extra."""


def import_trainer() -> type[PairTrainer]:
    """Return the trainer class; importing it loads scikit-learn, so only training calls this.

    Raises:
        TrainingUnavailable: scikit-learn is not installed.
    """
    try:
        from routing_policies.quality.training.pair_trainer import PairTrainer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("sklearn", "scipy"):
            raise
        raise TrainingUnavailable("training needs scikit-learn: pip install 'penstock[learning]'") from error
    return PairTrainer
