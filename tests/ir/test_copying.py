"""Copies of modules for concrete extents: branches that the extents of the parameters rule out."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Shape, dim


def decoder() -> mgx.Program:
    """Adds a mask to scores over a cache and new tokens if `cached`, else to scores over new tokens alone."""
    n, p, k = dim.symbol("n", 1, 64), dim.symbol("p", 0, 64), dim.symbol("k", 1, 64)
    program = mgx.Program(output_names=["scores"])
    main = program.get_main_module()
    cached = main.add_parameter("cached", Shape("bool", [1]))
    new = main.add_parameter("new", Shape("float32", [2, n]))
    cache = main.add_parameter("cache", Shape("float32", [2, p]))
    mask = main.add_parameter("mask", Shape("float32", [1, k]))
    sides = []
    for name, operands in (("then", [cache, new]), ("else", [new])):
        side = program.create_module(name)
        whole = side.add(mgx.op("concat", axis=1), *operands)
        lens = [2, dim.broadcast(whole.shape.dims[1], k)]
        both = [side.add(mgx.op("multibroadcast", out_lens=lens), x) for x in (whole, mask)]
        side.add_return([side.add(mgx.op("relu"), side.add(mgx.op("add"), *both))])
        sides.append(side)
    chosen = main.add(mgx.op("if"), cached, modules=sides)
    main.add_return([main.add(mgx.op("get_tuple_elem", index=0), chosen)])
    return program


def feeds(cached: bool, new: int, cache: int, mask: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(new + cache)
    drawn = {k: rng.normal(size=(2, n)).astype(np.float32) for k, n in (("new", new), ("cache", cache))}
    return drawn | {"cached": np.array([cached]), "mask": rng.normal(size=(1, mask)).astype(np.float32)}


@pytest.mark.parametrize("validate", [False, True])
def test_a_branch_that_is_not_taken_may_have_extents_that_do_not_fit(validate: bool) -> None:
    """A decoder without its cache is given any cache: 6 new tokens with a mask of 6, where the cache has 1."""
    program = decoder()
    program.compile(mgx.get_target("ref"), validate=validate)
    for cached, new, cache, mask in (
        (True, 1, 8, 9),
        (False, 6, 1, 6),
        (False, 6, 2, 6),
        (True, 2, 7, 9),
        (False, 3, 0, 3),
    ):
        given = feeds(cached, new, cache, mask)
        whole = np.concatenate([given["cache"], given["new"]], 1) if cached else given["new"]
        (ours,) = program.run(given)
        np.testing.assert_array_equal(np.asarray(ours), np.maximum(whole + given["mask"], 0))


def test_taking_such_a_branch_is_an_error() -> None:
    program = decoder()
    program.compile(mgx.get_target("ref"))
    with pytest.raises(mgx.ShapeError, match="extents 6 and 7 do not broadcast"):
        program.run(feeds(True, 6, 1, 6))


def test_two_branches_that_do_not_fit_are_refused_before_the_run() -> None:
    program = decoder()
    program.compile(mgx.get_target("ref"))
    with pytest.raises(mgx.ShapeError, match="do not broadcast"):
        program.run(feeds(False, 6, 1, 5))
