"""e to the x: x = n ln 2 + r with |r| ≤ ln 2 / 2, and e to the r by the polynomial of Cephes' expf."""

from __future__ import annotations

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
"""Of the powers of r from the seventh down to the second."""
LOWEST, HIGHEST = -87.0, 88.0
"""Between which 2 to the n is a normal number."""

POWER_TERMS = (
    1.326472724702269e-3,
    9.671512688148396e-3,
    5.5507337435744375e-2,
    0.24022242084635162,
    0.6931469775987168,
)
"""Of the powers of r from the fifth down to the first, in the polynomial for 2 to the r with |r| ≤ 1/2 whose value at 0
is 1 and whose largest relative error, 9.2e-8, is the least there is (Remez)."""
LEAST_POWER = -100.0
"""2 to that is nothing beside 1, and still a normal number when it is multiplied by one."""
