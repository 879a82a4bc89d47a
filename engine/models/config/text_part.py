"""Names of tensors in multimodal checkpoints: the text part's in its own terms, and those of other parts."""

from __future__ import annotations

_TEXT_PREFIXES = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
)
"""Prefixes of the text part's tensors, and the prefix of each in a checkpoint of text alone."""
_OTHER_PARTS = ("vision_tower.", "vision_model.", "visual.", "multi_modal_projector.", "mtp.")
"""Prefixes of the parts for images and for further tokens, with or without `model.` before them."""


_FURTHER_TOKENS = "mtp."
"""Prefix of the tensors that predict further tokens, which checkpoints of text alone have too."""


def own_name(name: str) -> str | None:
    """Return a tensor's name in a checkpoint of text; None: it belongs to another part."""
    return None if name.startswith(_FURTHER_TOKENS) else name


def text_name(name: str) -> str | None:
    """Return a tensor's name in a checkpoint of text alone; None: it belongs to another part."""
    for prefix, shorter in _TEXT_PREFIXES:
        if name.startswith(prefix):
            return shorter + name.removeprefix(prefix)
    return None if name.removeprefix("model.").startswith(_OTHER_PARTS) else name
