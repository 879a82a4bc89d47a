"""Integer tiles: int8 codes of activations times 8-bit or 4-bit codes of weights, summed group by group.

An instruction adds four products to a 32-bit sum (VNNI). Processors without it multiply the codes as float32: the sums
of a group stay below 2²⁴, so both are exact and every processor computes the same numbers. A group's sum becomes
float32 times the scales of its activations and weights, and groups are added in order. Results thus depend neither on
other rows nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils

from engine.cpu.gemm.code_rows import CODE_GROUP, CODES_AT, GROUP_BYTES, START_AT, SUM_AT
from engine.cpu.gemm.micro_kernel import MicroKernel, Registers
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.intrinsics import intrinsic

TOGETHER = 4
"""Number of adjacent inputs of one output whose codes make a 32-bit word."""
_WORDS = CODE_GROUP // TOGETHER
CODES = Registers(num_sums=1, most_rows=6 if LANES > 8 else 3)
"""Registers of tiles of two vectors of outputs: each output has an integer sum and a float32 sum."""
_LOW_HALF_BYTES = 0x0F0F0F0F
_AS_WRITTEN = ("nsz",)
"""Flags of operations that Numba must not reorder, which it does without any flags."""


class CodeKind(NamedTuple):
    """Form of weights as codes: weight = output scale * (group scale * (code - zero)) or, with minima, + minimum."""

    bits: int
    """Bits of a code, 8 or 4; codes are unsigned."""
    has_scales: bool
    """True if each group of inputs of an output has a scale."""
    has_minima: bool
    """True if each group has a minimum, which replaces the zero."""

    @property
    def zero(self) -> int:
        """Code of the weight 0 without minima; 0 with them."""
        return 0 if self.has_minima else 1 << (self.bits - 1)

    @property
    def name(self) -> str:
        """Short name for logs and metrics, with the arithmetic of this processor."""
        weights = f"int{self.bits} in groups" if self.has_scales else f"int{self.bits}"
        return f"{weights} times int8" + ("" if HAS_DOT_PRODUCT else " in float32")


CODE_KINDS = {
    1: CodeKind(8, has_scales=False, has_minima=False),
    2: CodeKind(8, has_scales=True, has_minima=False),
    3: CodeKind(8, has_scales=True, has_minima=True),
    4: CodeKind(4, has_scales=True, has_minima=False),
    5: CodeKind(4, has_scales=True, has_minima=True),
}
"""Kinds by their number in a PROJECTION record."""


def _has_dot_product() -> bool:
    name = {16: "avx512vnni", 8: "avxvnni"}[LANES]
    return bool(llvmlite.binding.get_host_cpu_features().get(name))


HAS_DOT_PRODUCT = _has_dot_product()
"""True if this processor has the instruction."""


def code_tile(
    num_vectors: int, *, is_cut: bool = False, has_dot_product: bool = HAS_DOT_PRODUCT
) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs; `is_cut` allows a partial last vector."""

    @intrinsic
    def tile(
        typing_context: Any,
        kind: Any,
        weights: Any,
        scales: Any,
        minima: Any,
        output_scales: Any,
        rows: Any,
        row_bytes: Any,
        num_groups: Any,
        out: Any,
        out_bytes: Any,
        num_rows: Any,
        num_outputs: Any,
    ) -> Any:
        """Compute products of codes, by addresses.

        Weights, group scales, minima (`code_weights`) and output scales, float32, begin at the first vector of
        outputs. Rows come from `round_to_codes`, at most `CODES.most_rows`. All outputs of the vectors are written, or
        of a cut tile the first `num_outputs`.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kernel = _CodeTile(builder, num_vectors, CODES, is_cut=is_cut)
            kernel.build_kinds(_Factors if has_dot_product else _FloatFactors, *arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 12), generate

    found: Callable[..., None] = tile
    return found


class _Factors(MicroKernel):
    """Emitter of the integer products of one group, by the instruction that adds four of them."""

    def start(self, block: Any) -> Any:
        """Return a row's start in every lane."""
        address = self._builder.add(block, ir.Constant(block.type, START_AT))
        return self._spread(self._load(address, ir.IntType(32)), self._words)

    def nothing(self) -> Any:
        """Return a sum of no products."""
        return ir.Constant(self._words, [0] * LANES)

    def accumulate(self, total: Any, block: Any, word: int, weight: Any) -> Any:
        """Return the total with four products of a row's codes and a vector of weights added."""
        builder = self._builder
        address = builder.add(block, ir.Constant(block.type, CODES_AT + TOGETHER * word))
        of_row = self._spread(self._load(address, ir.IntType(32)), self._words)
        kind = ir.FunctionType(self._words, [self._words] * 3)
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [total, weight, of_row])

    def sum_of(self, total: Any) -> Any:
        """Return the total as float32."""
        return self._builder.sitofp(total, self._vector)

    def weights(self, bits: int, address: Any, num_words: int) -> list[Any]:
        """Load vectors of words with four unsigned codes each, from adjacent memory."""
        builder = self._builder
        loaded = [
            self._load(place, self._words)
            for place in self._addresses(address, ir.Constant(address.type, 4 * LANES), num_words * bits // 8)
        ]
        if bits == 8:
            return loaded
        mask, shift = (ir.Constant(self._words, [number] * LANES) for number in (_LOW_HALF_BYTES, 4))
        return [builder.and_(half, mask) for both in loaded for half in (both, builder.lshr(both, shift))]


class _FloatFactors(_Factors):
    """Emitter of the same products in float32, which is exact."""

    def start(self, block: Any) -> Any:
        """Return a row's start in every lane."""
        address = self._builder.add(block, ir.Constant(block.type, START_AT))
        return self._broadcast(self._builder.sitofp(self._load(address, ir.IntType(32)), ir.FloatType()))

    def nothing(self) -> Any:
        """Return a sum of no products."""
        return self._zero()

    def accumulate(self, total: Any, block: Any, word: int, weight: Any) -> Any:
        """Return the total with four products of a row's codes and a vector of weights added."""
        builder = self._builder
        for byte in range(TOGETHER):
            address = builder.add(block, ir.Constant(block.type, CODES_AT + TOGETHER * word + byte))
            code = builder.load(builder.inttoptr(address, ir.IntType(8).as_pointer()), align=1)
            of_row = self._broadcast(builder.sitofp(code, ir.FloatType()))
            shifted = builder.lshr(weight, ir.Constant(self._words, [8 * byte] * LANES))
            of_weight = builder.uitofp(builder.and_(shifted, ir.Constant(self._words, [255] * LANES)), self._vector)
            total = self._fma(of_row, of_weight, total)
        return total

    def sum_of(self, total: Any) -> Any:
        """Return the total."""
        return total


class _CodeTile(MicroKernel):
    """Generator of the loop over groups, for each kind of weights and number of rows."""

    def build_kinds(self, factors_of: type[_Factors], kind: Any, *arguments: Any) -> None:
        """Emit the code of each kind."""
        factors = factors_of(self._builder, self._num_vectors, self._registers)
        cases: dict[int, Callable[[], None]] = {
            number: partial(self._build_kind, factors, one, *arguments) for number, one in CODE_KINDS.items()
        }
        self.choose(kind, cases)

    def _build_kind(
        self,
        factors: _Factors,
        kind: CodeKind,
        weights: Any,
        scales: Any,
        minima: Any,
        output_scales: Any,
        rows: Any,
        row_bytes: Any,
        num_groups: Any,
        out: Any,
        out_bytes: Any,
        num_rows: Any,
        num_outputs: Any,
    ) -> None:
        """Emit the code of one kind for each number of rows."""
        builder, integer = self._builder, num_groups.type
        code_bytes = LANES * CODE_GROUP * kind.bits // 8
        width = ir.Constant(integer, 4 * LANES)

        def vectors_at(base: Any, num_bytes: int, index: Any) -> list[Any]:
            """Return the addresses of a group's numbers, vector by vector."""
            step = ir.Constant(integer, num_bytes)
            first = builder.add(base, builder.mul(index, step))
            return self._addresses(first, builder.mul(num_groups, step), self._num_vectors)

        def totals_of(of_rows: list[Any], targets: list[Any]) -> list[Any]:
            def add_group(index: Any, totals: list[Any]) -> list[Any]:
                of_group = builder.mul(index, ir.Constant(integer, GROUP_BYTES))
                blocks = [builder.add(row, of_group) for row in of_rows]
                sums = self._summed_codes(factors, kind, blocks, vectors_at(weights, code_bytes, index))
                if kind.has_scales:
                    of_weights = [self._load_half_floats(at) for at in vectors_at(scales, 2 * LANES, index)]
                    sums = [
                        builder.fmul(one, of_weights[place % self._num_vectors], flags=_AS_WRITTEN)
                        for place, one in enumerate(sums)
                    ]
                totals = self._added(totals, blocks, 0, sums)
                if kind.has_minima:
                    least = [self._load_half_floats(at) for at in vectors_at(minima, 2 * LANES, index)]
                    totals = self._added(totals, blocks, SUM_AT, least * len(blocks))
                return totals

            zero, one = ir.Constant(integer, 0), ir.Constant(integer, 1)
            totals = self._loop(zero, one, num_groups, [self._zero()] * len(targets), add_group)
            factors_at = self._addresses(output_scales, width, self._num_vectors)
            last = [self._load_floats(address) for address in factors_at] * len(of_rows)
            return [builder.fmul(*pair, flags=_AS_WRITTEN) for pair in zip(totals, last, strict=True)]

        self.build(num_rows, (rows, row_bytes), (out, out_bytes), totals_of, num_outputs)

    def _summed_codes(self, factors: _Factors, kind: CodeKind, blocks: list[Any], at: list[Any]) -> list[Any]:
        """Return the sums of a group's products as float32, row by row."""
        builder = self._builder
        starts = [factors.nothing() if kind.has_minima else factors.start(block) for block in blocks]
        sums = [start for start in starts for _ in at]
        num_words = 8 // kind.bits
        for first in range(0, _WORDS, num_words):
            skipped = ir.Constant(at[0].type, first * 4 * LANES * kind.bits // 8)
            of_vectors = [factors.weights(kind.bits, builder.add(address, skipped), num_words) for address in at]
            for word in range(num_words):
                for row, block in enumerate(blocks):
                    for vector, words in enumerate(of_vectors):
                        into = row * len(at) + vector
                        sums[into] = factors.accumulate(sums[into], block, first + word, words[word])
        return [factors.sum_of(total) for total in sums]

    def _added(self, totals: list[Any], blocks: list[Any], offset: int, values: list[Any]) -> list[Any]:
        """Return the totals plus values times a number of each row's block."""
        of_rows = []
        for block in blocks:
            address = self._builder.add(block, ir.Constant(block.type, offset))
            of_rows += [self._broadcast(self._load(address, ir.FloatType()))] * self._num_vectors
        return [self._fma(*each) for each in zip(of_rows, values, totals, strict=True)]

    def _load_half_floats(self, address: Any) -> Any:
        """Load a vector of float16 as float32."""
        kind = ir.VectorType(ir.HalfType(), LANES)
        loaded = self._builder.load(self._builder.inttoptr(address, kind.as_pointer()), align=2)
        return self._builder.fpext(loaded, self._vector)


codes_2, codes_part = code_tile(2), code_tile(1, is_cut=True)
