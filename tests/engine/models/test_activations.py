"""Buffers of a decoder: views of one memory, whatever the number of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.models.activations import ActivationBuffers
from engine.models.families.registry import read_model_config
from tests.engine.models.checkpoints import make_reference

CPU = torch.device("cpu")


@pytest.fixture
def buffers(tmp_path: Path) -> ActivationBuffers:
    make_reference("llama3").config.save_pretrained(tmp_path)
    return ActivationBuffers(read_model_config(tmp_path), torch.float32, CPU)


def test_queries_keys_and_values_are_parts_of_one_projection(buffers: ActivationBuffers) -> None:
    views = buffers.of(3)
    assert (views.residual.shape, views.gate_up.shape) == ((3, 48), (3, 160))
    assert (views.queries.shape, views.keys.shape, views.values.shape) == ((3, 6, 8), (3, 2, 8), (3, 2, 8))
    views.qkv.copy_(torch.arange(3 * 80).view(3, 80))
    heads = torch.cat((views.queries, views.keys, views.values), dim=1)
    assert torch.equal(heads.flatten(1), views.qkv)
    assert torch.equal(views.heads_to_norm, heads[:, :8])
    assert torch.equal(torch.view_as_real(views.heads_to_rotate).flatten(-2), heads[:, :8])


def test_the_gate_and_the_up_projection_lie_side_by_side(buffers: ActivationBuffers) -> None:
    views = buffers.of(2)
    views.gate.fill_(1.0)
    views.up.fill_(2.0)
    assert views.gate_up.sum(1).tolist() == [80 * 3.0] * 2


def test_smaller_steps_share_the_memory_of_larger_ones_and_a_larger_one_gets_more(buffers: ActivationBuffers) -> None:
    large, small = buffers.of(9), buffers.of(2)
    large.residual.fill_(7.0)
    assert small.residual.data_ptr() == large.residual.data_ptr()
    assert bool((small.residual == 7.0).all())
    assert buffers.of(2) is small
    assert buffers.of(10).residual.shape == (10, 48)
    assert buffers.of(2).residual.data_ptr() == buffers.of(10).residual.data_ptr()
