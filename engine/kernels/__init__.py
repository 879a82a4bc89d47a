"""Triton kernels. Only the CUDA path imports these modules, because they need the package triton."""
