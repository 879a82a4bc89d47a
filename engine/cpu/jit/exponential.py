"""Constants of the exponential: x = n ln 2 + r with |r| ≤ ln 2 / 2, and e^r by the polynomial of Cephes' expf."""

from __future__ import annotations

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
"""Coefficients of the powers of r from the seventh down to the second."""
LOWEST, HIGHEST = -87.0, 88.0
"""Limits of x within which 2^n is a normal number."""

POWER_TERMS = (
    1.326472724702269e-3,
    9.671512688148396e-3,
    5.5507337435744375e-2,
    0.24022242084635162,
    0.6931469775987168,
)
"""Coefficients of the powers of r from the fifth down to the first for 2^r with |r| ≤ 1/2; the constant is 1.

The polynomial minimizes the largest relative error, 9.2e-8 (Remez).
"""
LEAST_POWER = -100.0
"""Exponent whose power of two is negligible beside 1, and still normal when multiplied by another one."""
