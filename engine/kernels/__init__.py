"""Triton kernels. Importing a module here needs triton; nothing outside the CUDA path does."""
