"""Just-in-time compilation of steps: Numba, intrinsics and record layouts."""
