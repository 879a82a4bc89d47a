"""Ahead-of-time compilation: `python -m engine.cpu` fills the compile cache before the first start."""

from __future__ import annotations

from engine.cpu.attention.attention import ATTENTION
from engine.cpu.execution import thread_pool
from engine.cpu.gemm.products import all_products
from engine.cpu.jit.compiler import keep_compiled_code
from engine.cpu.multi_step import argmax, draft_budget, ngram
from engine.cpu.multi_step.further_step import follow_step
from engine.cpu.multi_step.medusa import run_heads
from engine.cpu.step.experts import mix_experts

if __name__ == "__main__":
    keep_compiled_code()
    thread_pool.prepare()
    kernels = [follow_step, run_heads, mix_experts, *ATTENTION.values()]
    for product in all_products():
        kernels += [product.multiply, *([] if product.prepare is None else [product.prepare])]
    for kernel in kernels:
        _ = kernel.address
    ngram.prepare()
    argmax.prepare()
    draft_budget.prepare()
