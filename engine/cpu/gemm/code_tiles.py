"""Integer tiles: int8 codes of activations times 8-bit or 4-bit codes of weights, summed group by group.

An instruction adds four products to a 32-bit sum (VNNI). Processors without it multiply pairs of 16-bit numbers. Both
are exact, so every processor computes the same numbers. A group's sum becomes float32 times the scales of its
activations and weights, and groups are added in order. Results thus depend neither on other rows nor on the number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils

from engine.cpu.gemm.arithmetic import together
from engine.cpu.gemm.code_rows import CODE_GROUP, CODES_AT, GROUP_BYTES, START_AT, SUM_AT
from engine.cpu.gemm.micro_kernel import MicroKernel, Registers
from engine.cpu.gemm.tiles import AS_WRITTEN, LANES
from engine.cpu.jit.compiler import Compiled, inner
from engine.cpu.jit.intrinsics import intrinsic

TOGETHER = 4
"""Number of adjacent inputs of one output whose codes make a 32-bit word."""
_WORDS = CODE_GROUP // TOGETHER
_LOW_HALF_BYTES = 0x0F0F0F0F
_EVEN = 0x00FF00FF
"""Mask of the even bytes of a word, as two numbers of 16 bits."""


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
        return f"{weights} times int8" + ("" if HAS_DOT_PRODUCT else " in 16-bit pairs")


CODE_KINDS = {
    1: CodeKind(8, has_scales=False, has_minima=False),
    2: CodeKind(8, has_scales=True, has_minima=False),
    3: CodeKind(8, has_scales=True, has_minima=True),
    4: CodeKind(4, has_scales=True, has_minima=False),
    5: CodeKind(4, has_scales=True, has_minima=True),
}
"""Kinds by their number."""


def _has_dot_product() -> bool:
    name = {16: "avx512vnni", 8: "avxvnni"}[LANES]
    return bool(llvmlite.binding.get_host_cpu_features().get(name))


HAS_DOT_PRODUCT = _has_dot_product()
"""True if this processor has the instruction."""


def _pair_product() -> str:
    """Return LLVM's name of the instruction that adds two products of 16 bits; empty if there is none."""
    features = llvmlite.binding.get_host_cpu_features()
    if LANES == 16:
        return "llvm.x86.avx512.pmaddw.d.512" if features.get("avx512bw") else ""
    return "llvm.x86.avx2.pmadd.wd" if features.get("avx2") else ""


_PAIR_PRODUCT = _pair_product()


def code_registers(*, has_dot_product: bool = HAS_DOT_PRODUCT) -> Registers:
    """Return the registers of tiles of two vectors of outputs: each output has an integer sum and a float32 sum."""
    return Registers(num_sums=1, most_rows=2 if not has_dot_product else 6 if LANES > 8 else 3)


def code_tile(
    kind: CodeKind, num_vectors: int, *, is_cut: bool = False, has_dot_product: bool = HAS_DOT_PRODUCT
) -> Callable[..., None]:
    """Return an intrinsic for tiles of `num_vectors` vectors of outputs; `is_cut` allows a partial last vector."""

    @intrinsic
    def tile(
        typing_context: Any,
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
        outputs. Rows come from `round_to_codes`, at most as many as the registers allow. All outputs of the vectors are
        written, or of a cut tile the first `num_outputs`.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            registers = code_registers(has_dot_product=has_dot_product)
            kernel = _CodeTile(builder, num_vectors, registers, is_cut=is_cut)
            kernel.build_kind(kind, _Factors if has_dot_product else _PairFactors, *arguments)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 11), generate

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
        return self._all_words(0)

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
        mask, shift = self._all_words(_LOW_HALF_BYTES), self._all_words(4)
        return [builder.and_(half, mask) for both in loaded for half in (both, builder.lshr(both, shift))]


class _PairFactors(_Factors):
    """Emitter of the same products in pairs of 16 bits, for processors without the instruction."""

    def accumulate(self, total: Any, block: Any, word: int, weight: Any) -> Any:
        """Return the total with four products of a row's codes and a vector of weights added."""
        builder = self._builder
        address = builder.add(block, ir.Constant(block.type, CODES_AT + TOGETHER * word))
        codes = self._spread(self._load(address, ir.IntType(32)), self._words)
        mask, shifted = self._all_words(_EVEN), builder.lshr(weight, self._all_words(8))
        even = self._in_halves("ashr", self._in_halves("shl", codes, 8), 8), builder.and_(weight, mask)
        odd = self._in_halves("ashr", codes, 8), builder.and_(shifted, mask)
        for of_row, of_weight in (even, odd):
            total = builder.add(total, self._products(of_row, of_weight))
        return total

    def _in_halves(self, operation: str, words: Any, count: int) -> Any:
        """Return words whose two 16-bit numbers are shifted each."""
        builder, halves = self._builder, ir.VectorType(ir.IntType(16), 2 * LANES)
        shifted = getattr(builder, operation)(builder.bitcast(words, halves), ir.Constant(halves, [count] * 2 * LANES))
        return builder.bitcast(shifted, self._words)

    def _products(self, one: Any, other: Any) -> Any:
        """Return the sum of the two products of 16-bit numbers in each lane."""
        builder = self._builder
        if _PAIR_PRODUCT:
            halves = ir.VectorType(ir.IntType(16), 2 * LANES)
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(self._words, [halves] * 2), _PAIR_PRODUCT
            )
            return builder.call(function, [builder.bitcast(words, halves) for words in (one, other)])
        half = self._all_words(16)
        low = builder.mul(*(builder.ashr(builder.shl(words, half), half) for words in (one, other)))
        return builder.add(low, builder.mul(*(builder.ashr(words, half) for words in (one, other))))


class _CodeTile(MicroKernel):
    """Generator of the loop over groups, for each number of rows."""

    def build_kind(
        self,
        kind: CodeKind,
        factors_of: type[_Factors],
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
        factors = factors_of(self._builder, self._num_vectors, self._registers)
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
                        builder.fmul(one, of_weights[place % self._num_vectors], flags=AS_WRITTEN)
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
            return [builder.fmul(*pair, flags=AS_WRITTEN) for pair in zip(totals, last, strict=True)]

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


def code_multiplier(kind: CodeKind, *, has_dot_product: bool = HAS_DOT_PRODUCT) -> Compiled:
    """Return the loops over tiles of weights of a kind."""
    tile_2 = code_tile(kind, 2, has_dot_product=has_dot_product)
    tile_part = code_tile(kind, 1, is_cut=True, has_dot_product=has_dot_product)
    most_rows, group_bytes = code_registers(has_dot_product=has_dot_product).most_rows, CODE_GROUP * kind.bits // 8

    @inner
    def multiply(projection, first, num_outputs, rows, num_rows, out, out_stride):
        """Compute out[row, output] = rows[row] · weights[first + output] of rows of codes."""
        num_groups = projection.num_inputs // CODE_GROUP
        row_bytes, stride, output = num_groups * GROUP_BYTES, 4 * out_stride, 0
        while output < num_outputs:
            at, left, row = first + output, num_outputs - output, 0
            codes, of_groups = projection.packed + at * num_groups * group_bytes, 2 * at * num_groups
            scales, minima = projection.group_scales + of_groups, projection.group_minima + of_groups
            of_outputs = projection.scales + 4 * at
            while row < num_rows:
                count = together(num_rows - row, most_rows)
                of_rows, found = rows + row * row_bytes, out + 4 * (row * out_stride + output)
                if left >= 2 * LANES:
                    tile_2(codes, scales, minima, of_outputs, of_rows, row_bytes, num_groups, found, stride, count, 0)
                else:
                    tile_part(
                        codes, scales, minima, of_outputs, of_rows, row_bytes, num_groups, found, stride, count, left
                    )
                row += count
            output += 2 * LANES if left >= 2 * LANES else LANES

    return multiply
