"""e to the x: x = n ln 2 + r with |r| ≤ ln 2 / 2, and e to the r by the polynomial of Cephes' expf."""

from __future__ import annotations

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
"""Of the powers of r from the seventh down to the second."""
LOWEST, HIGHEST = -87.0, 88.0
"""Between which 2 to the n is a normal number."""
