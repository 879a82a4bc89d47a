"""Operations between the matrix products, by device."""

from __future__ import annotations

import sys

import pytest
import torch

from engine.models.decoder import DecoderLayer
from engine.models.layer_ops import TorchLayerOps, layer_ops


def test_without_a_card_the_operations_are_torchs_and_need_no_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    ops = layer_ops(torch.device("cpu"))
    assert isinstance(ops, TorchLayerOps)
    assert ops.layer is DecoderLayer


def test_a_gate_writes_into_its_own_half_only() -> None:
    buffer = torch.tensor([[1.0, -2.0, 3.0, 5.0]])
    out = TorchLayerOps().gate(buffer[:, :2], buffer[:, 2:], "silu")
    assert out.data_ptr() == buffer.data_ptr()
    assert buffer[0].tolist() == pytest.approx([3.0 / (1 + 2.718281828**-1), -10.0 / (1 + 2.718281828**2), 3.0, 5.0])
