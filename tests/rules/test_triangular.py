"""The rule that recognizes triangular systems solved row by row: module text before and after, and equal results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.instruction import Instruction
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module

NAME = "solve-from-row-updates"


class Chain:
    """Builds row updates of matrices as torch.export writes `a[.., i, :i] = row + (row[.., None] * sub).sum(-2)`."""

    def __init__(self, dims: Sequence[int], dtype: str = "float32", diagonal: int | None = -1) -> None:
        self.program = mgx.Program()
        self.m: Module = self.program.get_main_module()
        self.size, self.rank = dims[-1], len(dims)
        self.row_axis, self.column_axis = self.rank - 2, self.rank - 1
        x = self.m.add_parameter("x", mgx.Shape(dtype, dims))
        self.matrix = x if diagonal is None else self.add("trilu", x, upper=False, k=diagonal)
        self.states = [self.matrix]

    def add(self, name: str, *inputs: Instruction, **attributes: object) -> Instruction:
        return self.m.add(mgx.op(name, **attributes), *inputs)

    def cut(self, x: Instruction, axis: int, begin: int, end: int) -> Instruction:
        return self.add("slice", x, axes=[axis], starts=[begin], ends=[end])

    def row(self, x: Instruction, i: int) -> Instruction:
        return self.add("squeeze", self.cut(x, self.row_axis, i, i + 1), axes=[self.row_axis])

    def total(self, row: Instruction, block: Instruction, swapped: bool = False) -> Instruction:
        """Returns the sum of the products of a row with the rows of a block."""
        column = self.add("unsqueeze", row, axes=[self.column_axis])
        column = self.add("multibroadcast", column, out_lens=list(block.shape.dims))
        product = self.add("mul", *((block, column) if swapped else (column, block)))
        return self.add("squeeze", self.add("reduce_sum", product, axes=[self.row_axis]), axes=[self.row_axis])

    def update(
        self, i: int, source: Instruction | None = None, count: int | None = None, swapped: bool = False
    ) -> None:
        """Updates row i; source: what the rows before it are read from; count: of columns that are updated."""
        x, count = self.states[-1], i if count is None else count
        row = self.cut(self.row(x, i), self.row_axis, 0, count)
        block = self.cut(self.cut(x if source is None else source, self.row_axis, 0, count), self.column_axis, 0, count)
        total = self.total(row, block, swapped)
        new = self.add("add", *((total, row) if swapped else (row, total)))
        rest = self.cut(self.row(x, i), self.row_axis, count, self.size)
        row = self.add("unsqueeze", self.add("concat", new, rest, axis=self.row_axis), axes=[self.row_axis])
        above = [self.cut(x, self.row_axis, 0, i)] if i else []
        below = [self.cut(x, self.row_axis, i + 1, self.size)] if i + 1 < self.size else []
        self.states.append(self.add("concat", *above, row, *below, axis=self.row_axis))

    def finish(self, *others: Instruction) -> str:
        self.m.add_return([self.states[-1], *others])
        return str(self.m).removeprefix("module main\n")


class Scattered(Chain):
    """The same as torch exports it to ONNX: what is assigned is scattered to constant places."""

    def update(
        self, i: int, source: Instruction | None = None, count: int | None = None, swapped: bool = False
    ) -> None:
        x, count, size = self.states[-1], i if count is None else count, self.size
        whole_row = self.row(x, i)
        row = self.cut(whole_row, self.row_axis, 0, count)
        block = self.cut(self.cut(x, self.row_axis, 0, count), self.column_axis, 0, count)
        new = self.add("add", row, self.total(row, block, swapped))
        turned = [self.add("transpose", v) for v in (whole_row, new)]
        places = self.m.add_literal(np.arange(count)[:, None])
        row = self.add("transpose", self.add("scatternd_none", turned[0], places, turned[1]))
        row = self.add("unsqueeze", row, axes=[self.row_axis])
        places = self.m.add_literal(np.full([*x.shape.dims[:-2], 1, size], i))
        self.states.append(self.add("scatter_none", x, places, row, axis=self.row_axis))


def whole(dims: Sequence[int], swapped: bool = False, kind: type[Chain] = Chain, **options: object) -> Chain:
    chain = kind(dims, **options)  # type: ignore[arg-type]
    for i in range(1, chain.size):
        chain.update(i, swapped=swapped)
    return chain


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("dims", [(4, 4), (2, 3, 5, 5), (2, 1, 1, 9, 9)], ids=str)
def test_the_updates_become_one_solve(rule_turns: Callable[..., None], dims: tuple[int, ...], swapped: bool) -> None:
    of = f"float32[{', '.join(map(str, dims))}]"
    after = f"""\
  %x = @param["x"] -> {of}
  %1 = trilu[upper=false, k=-1](%x) -> {of}
  %2 = neg(%1) -> {of}
  %3 = solve_triangular[upper=false, unit=true](%2, %1) -> {of}
  @return(%3)"""
    rule_turns(NAME, whole(dims, swapped).finish(), after)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_after_the_other_rules(dtype: str, kept: bool) -> None:
    """A matrix masked by a constant, negated, with a reader of its own: results agree with the updates."""
    chain = Chain((2, 3, 16, 16), dtype, diagonal=None)
    mask = np.tril(np.ones((16, 16), np.bool_), -1)
    wide = [
        chain.add("multibroadcast", chain.m.add_literal(v), out_lens=[2, 3, 16, 16])
        for v in (mask if kept else ~mask, np.zeros((), dtype))
    ]
    chosen = (chain.matrix, wide[1]) if kept else (wide[1], chain.matrix)
    chain.matrix = chain.add("neg", chain.add("where", wide[0], *chosen))
    chain.states = [chain.matrix]
    for i in range(1, 16):
        chain.update(i)
    chain.finish(chain.add("exp", chain.matrix))
    x = np.random.default_rng(1).uniform(-0.5, 0.5, (2, 3, 16, 16)).astype(dtype)
    wanted = Interpreter().run(chain.m.clone(), [x])
    chain.program.compile(mgx.get_target("ref"))
    text = str(chain.program)
    assert text.count("= solve_triangular") == 1 and "reduce_sum" not in text and "concat" not in text, text
    bound = 16 * float(np.finfo(dtype).eps)
    for one, other in zip(chain.program.run({"x": x}), wanted, strict=True):
        np.testing.assert_allclose(one.to_numpy(), np.asarray(other), rtol=bound, atol=bound * 4)


def without_a_row() -> str:
    chain = Chain((2, 5, 5))
    for i in (1, 2, 4):
        chain.update(i)
    return chain.finish()


def out_of_order() -> str:
    chain = Chain((2, 5, 5))
    for i in (2, 1, 3, 4):
        chain.update(i)
    return chain.finish()


def a_row_twice() -> str:
    chain = Chain((2, 5, 5))
    for i in (1, 2, 2, 3, 4):
        chain.update(i)
    return chain.finish()


def from_the_original_rows() -> str:
    chain = Chain((2, 5, 5))
    for i in range(1, 5):
        chain.update(i, source=chain.matrix)
    return chain.finish()


def with_fewer_columns() -> str:
    chain = Chain((2, 5, 5))
    for i in (1, 2, 3):
        chain.update(i, count=min(i, 2))
    chain.update(4)
    return chain.finish()


def of_another_matrix() -> str:
    chain = Chain((2, 5, 5))
    other = chain.add("exp", chain.matrix)
    for i in range(1, 5):
        chain.update(i, source=other if i == 1 else None)
    return chain.finish()


def read_in_between() -> str:
    chain = whole((2, 5, 5))
    return chain.finish(chain.states[2])


ORDER = "the rows are not each updated once, in order, by all rows before them"
ZEROS = "the matrix is not known to be zero on and above its diagonal"

REFUSES: list[tuple[Callable[[], str], str]] = [
    (without_a_row, ORDER),
    (out_of_order, ORDER),
    (a_row_twice, ORDER),
    (from_the_original_rows, ORDER),
    (with_fewer_columns, ORDER),
    (of_another_matrix, ORDER),
    (read_in_between, "a matrix between two updates has other readers"),
    (lambda: whole((2, 5, 5), diagonal=None).finish(), ZEROS),
    (lambda: whole((2, 5, 5), diagonal=0).finish(), ZEROS),
    (lambda: whole((2, 3, 3)).finish(), "the system has 3 rows, those of 4 to 128 are solved"),
    (lambda: whole((1, 129, 129)).finish(), "the system has 129 rows, those of 4 to 128 are solved"),
]


@pytest.mark.parametrize(("before", "why"), REFUSES, ids=lambda v: getattr(v, "__name__", ""))
def test_refuses(rule_refuses: Callable[..., None], before: Callable[[], str], why: str) -> None:
    rule_refuses(NAME, before(), why)


@pytest.mark.parametrize("dims", [(2, 6, 6), (2, 3, 16, 16)])
def test_rows_that_are_scattered_are_solved(dims: tuple[int, ...]) -> None:
    chain = whole(dims, kind=Scattered)
    chain.finish()
    x = np.random.default_rng(3).standard_normal(dims).astype(np.float32) / 4
    (wanted,) = Interpreter().run(chain.m.clone(), [x])
    chain.program.compile(mgx.get_target("ref"))
    assert str(chain.program).count("= solve_triangular") == 1 and "scatter" not in str(chain.program)
    np.testing.assert_allclose(chain.program.run({"x": x})[0].to_numpy(), np.asarray(wanted), rtol=1e-5, atol=1e-6)


def test_narrow_floats_round_each_product() -> None:
    chain = whole((2, 5, 5), dtype="float16")
    chain.finish()
    chain.program.compile(mgx.get_target("ref"))
    assert "solve_triangular" not in str(chain.program)
