"""A head's numbers in whole vectors, beside torch's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engine.cpu.attention import head_tiles
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import compiled

EPSILON = 1e-6


@compiled
def turn_head(head, weights, rotations, size, epsilon):  # type: ignore[no-untyped-def]
    if weights != 0:
        head_tiles.turn_normed(head, weights, rotations, size, epsilon)
    else:
        head_tiles.turn(head, weights, rotations, size, epsilon)


@compiled
def put_key(source, size, target, step_bytes):  # type: ignore[no-untyped-def]
    head_tiles.store_key(source, size, target, step_bytes)


@compiled
def put_value(source, size, target, is_second):  # type: ignore[no-untyped-def]
    head_tiles.store_value(source, size, target, is_second)


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("size", [LANES, 2 * LANES, 5 * LANES])
@pytest.mark.parametrize("has_norm", [False, True], ids=["plain", "normed"])
def test_a_head_is_normed_and_its_pairs_are_turned(size: int, has_norm: bool) -> None:
    head, weights, angles = numbers(size), numbers(size, seed=2), numbers(size // 2, seed=3)
    rotations = torch.stack([angles.cos(), angles.sin()], 1).flatten()
    normed = torch.nn.functional.rms_norm(head.double(), (size,), weights.double(), EPSILON) if has_norm else head
    turned = torch.view_as_complex(normed.double().view(-1, 2)) * torch.polar(torch.ones(size // 2), angles)

    turn_head(head.data_ptr(), weights.data_ptr() if has_norm else 0, rotations.data_ptr(), size, np.float32(EPSILON))

    assert (head - torch.view_as_real(turned).flatten()).abs().max() < 1e-5


def odd_numbers(size: int) -> torch.Tensor:
    """Some of which lie in the middle of two bfloat16, and some are none."""
    found = numbers(size)
    middle = torch.tensor([0x3F808000, 0x3F818000, 0x3F80FFFF, 0x3F808001, 0x00000001], dtype=torch.int32)
    found[:8] = torch.cat([middle.view(torch.float32), torch.tensor([math.inf, -math.inf, math.nan])])
    return found


def are_same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether all numbers are the same, and what is none is none."""
    return torch.equal(found.isnan(), expected.isnan()) and torch.equal(found.nan_to_num(9.0), expected.nan_to_num(9.0))


def test_a_keys_pairs_of_features_lie_apart() -> None:
    size, apart = 2 * LANES, 5
    key, block = odd_numbers(size), torch.full((size // 2, apart, 2), 7.0).bfloat16()

    put_key(key.data_ptr(), size, block.data_ptr() + 4 * 3, 4 * apart)

    assert are_same(block[:, 3].flatten(), key.bfloat16())
    others = [place for place in range(apart) if place != 3]
    assert (block[:, others] == 7.0).all()


@pytest.mark.parametrize("place", [0, 1])
def test_a_value_leaves_the_other_of_its_pair_alone(place: int) -> None:
    size = 2 * LANES
    value, pairs = odd_numbers(size), torch.full((size + LANES, 2), 7.0).bfloat16()

    put_value(value.data_ptr(), size, pairs.data_ptr(), place)

    assert are_same(pairs[:size, place], value.bfloat16())
    assert (pairs[:size, 1 - place] == 7.0).all()
    assert (pairs[size:] == 7.0).all()
