"""Loops over slices of different lengths, computed by one op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from mgx_core import Instruction, Module, Shape, dim, op
from mgx_core.errors import No, ShapeError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.verify import verify
from mgx_core.passes.inline_branches import put_results
from mgx_core.passes.ragged_loops import vectorized

OFFSETS = np.array([0, 3, 3, 7, 12], np.int64)
TABLE = np.random.default_rng(2).standard_normal((20, 4)).astype(np.float32)
INDICES = np.random.default_rng(3).integers(0, 20, 12)
Body = Callable[[Module, Instruction, Instruction, Instruction, Instruction], Sequence[Instruction]]


def number(module: Module, value: Any) -> Instruction:
    return module.add_literal(np.asarray(value, np.int64))


def bounds(body: Module, i: Instruction, offsets: Instruction) -> tuple[Instruction, Instruction]:
    """Returns offsets[i] and offsets[i + 1] as vectors of one element, gathered."""
    after = body.add(op("add"), i, number(body, 1))
    return tuple(body.add(op("unsqueeze", axes=[0]), body.add(op("gather"), offsets, n)) for n in (i, after))  # type: ignore[return-value]


def windows(body: Module, i: Instruction, offsets: Instruction) -> tuple[Instruction, Instruction]:
    """Returns the same, as slices of one element with computed bounds."""
    places = [body.add(op("unsqueeze", axes=[0]), body.add(op("add"), i, number(body, n))) for n in range(3)]
    return tuple(body.add(op("slice", axes=[0]), offsets, *pair) for pair in pairwise(places))  # type: ignore[return-value]


def bag(reduction: str) -> Body:
    """A body that reduces the rows of a table at a slice of the indices."""

    def build(
        body: Module, i: Instruction, x: Instruction, offsets: Instruction, weights: Instruction
    ) -> Sequence[Instruction]:
        picked = body.add(op("slice", axes=[0]), x, *bounds(body, i, offsets))
        rows = body.add(op("gather"), body.add_literal(TABLE), picked)
        return [body.add(op("squeeze", axes=[0]), body.add(op(reduction, axes=[0]), rows))]

    return build


def weighted(
    body: Module, i: Instruction, x: Instruction, offsets: Instruction, weights: Instruction
) -> Sequence[Instruction]:
    """Rows of the table times slices of the weights."""
    places = bounds(body, i, offsets)
    rows = body.add(op("gather"), body.add_literal(TABLE), body.add(op("slice", axes=[0]), x, *places))
    part = body.add(op("unsqueeze", axes=[1]), body.add(op("slice", axes=[0]), weights, *places))
    spread = op("multibroadcast", out_lens=(dim.broadcast(rows.shape.dims[0], part.shape.dims[0]), 4))
    shared = body.add(spread, rows), body.add(spread, part)
    return [body.add(op("reduce_sum", axes=[0]), body.add(op("mul"), *shared))]


def chosen(
    body: Module, i: Instruction, x: Instruction, offsets: Instruction, weights: Instruction
) -> Sequence[Instruction]:
    """Ones where the slice has no elements, else its sum; bounds are slices of the offsets."""
    start, end = windows(body, i, offsets)
    then, other = Module("then"), Module("other")
    then.add_return([then.add_literal(np.ones(1, np.float32))])
    part = other.add(op("slice", axes=[0]), weights, start, end)
    other.add_return([other.add(op("reduce_sum", axes=[0]), part)])
    same = body.add(op("reshape", dims=[]), body.add(op("equal"), start, end))
    branch = body.add(op("if"), same, modules=[then, other])
    return [body.add(op("get_tuple_elem", index=0), branch), i]


def looping(build: Body, count: int = 4) -> Module:
    """A scan over the iteration numbers; all its rows are returned."""
    module, body = Module("main"), Module("body")
    x, offsets = module.add_literal(INDICES), module.add_literal(OFFSETS)
    weights = module.add_literal(np.linspace(-1, 1, 12, dtype=np.float32))
    numbers = module.add(op("dynamic_range", length=count), *(number(module, n) for n in (0, count, 1)))
    made = build(body, body.add_parameter("i", Shape("int64", [])), x, offsets, weights)
    body.add_return(made)
    scan = module.add(op("scan", input_axes=[0]), numbers, modules=[body])
    module.add_return([module.add(op("get_tuple_elem", index=n), scan) for n in range(len(made))])
    return module


def joined(module: Module) -> No | None:
    """Replaces the loop by its results for all iterations at once, or returns why not."""
    (loop,) = [i for i in module if i.op.control]
    results = vectorized(module, loop)
    if isinstance(results, No):
        return results
    put_results(module, loop, results)
    return None


@pytest.mark.parametrize(
    "build", [*(bag(f"reduce_{n}") for n in ("sum", "mean", "max", "min")), weighted, chosen],
    ids=["sum", "mean", "max", "min", "weighted", "chosen"],
)  # fmt: skip
def test_joined_iterations(build: Body) -> None:
    module = looping(build)
    with np.errstate(all="ignore"):
        before = Interpreter().run(module, [])
    assert joined(module) is None
    module.sweep()
    assert verify(module) == []
    assert not any(i.op.control for i in module)
    assert [i.op.name for i in module].count("reduce_slices") == 1
    for wanted, found in zip(before, Interpreter().run(module, []), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_rows_of_one_iteration() -> None:
    """The sums in numpy, without an op of a loop."""
    module = looping(bag("reduce_sum"))
    assert joined(module) is None
    (found,) = Interpreter().run(module, [])
    rows = [TABLE[INDICES[a:b]].sum(0) for a, b in pairwise(OFFSETS)]
    np.testing.assert_allclose(found, np.stack(rows), rtol=1e-6)


def gathered_in_a_branch(
    body: Module, i: Instruction, x: Instruction, offsets: Instruction, weights: Instruction
) -> Sequence[Instruction]:
    """A gather that would fail in iterations that do not take its branch."""
    then, other = Module("then"), Module("other")
    then.add_return([then.add_literal(np.ones((), np.float32))])
    other.add_return([other.add(op("gather"), weights, other.add(op("mul"), i, number(other, 4)))])
    branch = body.add(op("if"), body.add(op("equal"), i, number(body, 3)), modules=[then, other])
    part = body.add(op("slice", axes=[0]), weights, *bounds(body, i, offsets))
    total = body.add(op("squeeze", axes=[0]), body.add(op("reduce_sum", axes=[0]), part))
    return [body.add(op("add"), total, body.add(op("get_tuple_elem", index=0), branch))]


def returned(
    body: Module, i: Instruction, x: Instruction, offsets: Instruction, weights: Instruction
) -> Sequence[Instruction]:
    """The largest of slices of different lengths, after another op than a reduction of them."""
    part = body.add(op("slice", axes=[0]), weights, *bounds(body, i, offsets))
    order = body.add(op("prefix_scan_sum", axis=0), part)
    return [body.add(op("reduce_max", axes=[0]), order)]


def scalars(
    body: Module, i: Instruction, x: Instruction, offsets: Instruction, weights: Instruction
) -> Sequence[Instruction]:
    """The sum of a scalar, which has no axes."""
    part = body.add(op("slice", axes=[0]), weights, *bounds(body, i, offsets))
    total = body.add(op("squeeze", axes=[0]), body.add(op("reduce_sum", axes=[0]), part))
    return [body.add(op("reduce_sum"), total)]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (gathered_in_a_branch, "gather in its body is not vectorized"),
        (returned, "prefix_scan_sum in its body is not"),
        (scalars, "reduce_sum in its body is not vectorized"),
    ],
)
def test_refused_bodies(build: Body, said: str) -> None:
    """The module is unchanged."""
    module = looping(build)
    before = str(module)
    no = joined(module)
    assert no is not None and said in no.why
    assert str(module) == before


def listing(measured: bool) -> Module:
    """A loop that appends sums of slices to a list; if `measured`, also with the length of the list after each iteration."""
    module, body = Module("main"), Module("body")
    offsets, weights = module.add_literal(OFFSETS), module.add_literal(np.linspace(-1, 1, 12, dtype=np.float32))
    empty = module.add(op("sequence_empty", dtype="float32"))
    i, going = (body.add_parameter(n, Shape(kind, [])) for n, kind in (("i", "int64"), ("going", "bool")))
    part = body.add(op("slice", axes=[0]), weights, *bounds(body, i, offsets))
    before = body.add_parameter("list", empty.result)
    after = body.add(op("sequence_insert"), before, body.add(op("reduce_sum", axes=[0]), part))
    body.add_return([going, after, *([body.add(op("sequence_length"), after)] if measured else [])])
    loop = module.add(op("loop"), number(module, 4), module.add_literal(np.asarray(True)), empty, modules=[body])
    module.add_return([module.add(op("get_tuple_elem", index=n), loop) for n in range(1 + measured)])
    return module


def test_lists() -> None:
    module = listing(measured=False)
    (before,) = Interpreter().run(module, [])
    assert joined(module) is None
    assert verify(module) == []
    (found,) = Interpreter().run(module, [])
    np.testing.assert_allclose(found, before, rtol=1e-6)


def test_lists_that_an_iteration_reads() -> None:
    module = listing(measured=True)
    no = joined(module)
    assert no is not None and "a list is used in an iteration" in no.why


def padded(order: int = 0, kept: int = 0, moving: bool = False) -> Body:
    """Means of the rows of a table at the indices that are not padding, which a loop lists; zeros for a bag of padding.

    order: of the loop's states, the position and the list; kept: which branch keeps the list as it is; moving: the padding
    depends on the iteration.
    """

    def build(
        body: Module, i: Instruction, x: Instruction, offsets: Instruction, weights: Instruction
    ) -> Sequence[Instruction]:
        start, end = (body.add(op("squeeze", axes=[0]), b) for b in bounds(body, i, offsets))
        lists, empty = Module("lists"), body.add_literal(np.zeros(0, np.int64))
        names = ["count", "going", *(["j", "list"] if not order else ["list", "j"])]
        kinds = {"count": ("int64", []), "going": ("bool", []), "j": ("int64", []), "list": ("int64", [dim.fresh("n")])}
        given = {n: lists.add_parameter(n, Shape(*kinds[n])) for n in names}
        j, before = given["j"], given["list"]
        padding = i if moving else number(lists, 5)
        is_padding = lists.add(op("less"), lists.add(op("gather"), x, j), padding)
        condition = is_padding if kept == 0 else lists.add(op("not"), is_padding)
        grown, same = Module("grown"), Module("same")
        grown.add_return([grown.add(op("concat", axis=0), before, grown.add(op("unsqueeze", axes=[0]), j))])
        same.add_return([before])
        branch = lists.add(op("if"), condition, modules=[same, grown] if kept == 0 else [grown, same])
        after = [lists.add(op("add"), j, number(lists, 1)), lists.add(op("get_tuple_elem", index=0), branch)]
        going = lists.add(op("less"), after[0], end)
        lists.add_return([going, *(after if not order else reversed(after))])
        states = [start, empty] if not order else [empty, start]
        listed = body.add(op("loop"), body.add_absent(), body.add(op("less"), start, end), *states, modules=[lists])
        places = body.add(op("get_tuple_elem", index=1 - order), listed)
        count = body.add(op("reshape", dims=[]), body.add(op("dimensions_of"), places))
        then, other = Module("then"), Module("other")
        then.add_return([then.add_literal(np.zeros((1, 4), np.float32))])
        rows = body.add(op("gather"), body.add_literal(TABLE), x)
        other.add_return([other.add(op("reduce_mean", axes=[0]), other.add(op("gather"), rows, places))])
        none = body.add(op("equal"), count, number(body, 0))
        return [body.add(op("get_tuple_elem", index=0), body.add(op("if"), none, modules=[then, other]))]

    return build


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("kept", [0, 1])
def test_positions_that_a_loop_lists(order: int, kept: int) -> None:
    module = looping(padded(order, kept))
    with np.errstate(all="ignore"):
        (before,) = Interpreter().run(module, [])
    assert joined(module) is None
    module.sweep()
    assert verify(module) == []
    assert not any(i.op.control for i in module)
    (found,) = Interpreter().run(module, [])
    picked = [[n for n in INDICES[a:b] if n >= 5] for a, b in pairwise(OFFSETS)]
    rows = [TABLE[p].mean(0) if p else np.zeros(4) for p in picked]
    assert any(len(p) not in (0, b - a) for p, (a, b) in zip(picked, pairwise(OFFSETS), strict=True))
    np.testing.assert_allclose(found[:, 0], rows, rtol=1e-6)
    np.testing.assert_allclose(found, before, rtol=1e-6)


@pytest.mark.parametrize("offsets", [[0, 3, -1, 7, 12], [0, 3, 3, 7, 13]])
def test_bounds_of_listed_positions_that_do_not_exist(offsets: list[int]) -> None:
    module = looping(padded())
    assert joined(module) is None
    given = next(i for i in module if i.is_literal and i.literal is not None and i.shape.dims == (5,))
    module.replace(given, module.add_literal(np.array(offsets, np.int64), before=given))
    with pytest.raises(ShapeError, match="13"):
        Interpreter().run(module, [])


def test_gathers_in_a_branch_do_not_bound_positions() -> None:
    """A loop that may visit positions past the tensor from which a branch gathers."""
    module = looping(padded())
    (outer,) = [i for i in module if i.op.control]
    (lists,) = next(i for i in outer.modules[0] if i.op.control and i.op.name == "loop").modules
    gathered = next(i for i in lists if i.op.name == "gather")
    then, other = Module("then"), Module("other")
    then.add_return([then.add(gathered.op, *gathered.inputs)])
    other.add_return([other.add_literal(np.asarray(7, np.int64))])
    nine = lists.add_literal(np.asarray(9, np.int64), before=gathered)
    inside = lists.add(op("less"), gathered.inputs[1], nine, before=gathered)
    branch = lists.add(op("if"), inside, modules=[then, other], before=gathered)
    lists.replace(gathered, lists.add(op("get_tuple_elem", index=0), branch, before=gathered))
    lists.sweep()
    no = joined(module)
    assert no is not None and "the positions that a loop lists have no bound" in no.why


def test_lists_whose_condition_depends_on_the_iteration() -> None:
    no = joined(looping(padded(moving=True)))
    assert no is not None and "the positions that are listed depend on the iteration" in no.why
