"""The algebra of views: a chain and its simplified form have the same effect on a tensor."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mgx_core import dim
from mgx_core.ops import STANDARD
from mgx_core.rules.view_chain import ViewChain, cost, regrouping
from mgx_core.types.shape import Shape


def make(name: str, **attributes):
    return STANDARD.make(name, **attributes)


@st.composite
def chains(draw: st.DrawFn):
    """Draws extents and a list of consecutive views."""
    dims = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    shape = Shape("float", dims)
    start, ops = shape, []
    for _ in range(draw(st.integers(1, 6))):
        dims, rank = list(shape.dims), shape.rank
        kind = draw(
            st.sampled_from(["transpose", "join", "split", "unsqueeze", "squeeze", "multibroadcast", "broadcast"])
        )
        if kind == "transpose":
            op = make("transpose", permutation=tuple(draw(st.permutations(range(rank)))))
        elif kind == "join" and rank > 1:
            at = draw(st.integers(0, rank - 2))
            op = make("reshape", dims=(*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :]))
        elif kind == "split" and any(d % 2 == 0 for d in dims):
            at = draw(st.sampled_from([n for n, d in enumerate(dims) if d % 2 == 0]))
            op = make("reshape", dims=(*dims[:at], 2, dims[at] // 2, *dims[at + 1 :]))
        elif kind == "unsqueeze" and rank < 6:
            op = make("unsqueeze", axes=(draw(st.integers(0, rank)),))
        elif kind == "squeeze" and 1 in dims:
            op = make("squeeze", axes=(dims.index(1),))
        elif kind == "multibroadcast" and rank < 5:
            op = make("multibroadcast", out_lens=(2, *(3 if d == 1 else d for d in dims)))
        elif kind == "broadcast" and rank < 5:
            op = make("broadcast", axis=1, out_lens=(2, *dims, 3))
        else:
            continue
        out = op.result([shape])
        if out.elements() > 2000 or out.rank > 6:
            continue
        ops.append((op, out.dims))
        shape = out
    return start, ops, shape


@settings(max_examples=300, deadline=None, derandomize=True)
@given(chains())
def test_the_simplified_form_equals_the_chain(chain):
    start, ops, _ = chain
    views = ViewChain(start.dims)
    for op, dims in ops:
        if not views.follow(op, dims):
            assert op.name in ("reshape", "squeeze", "unsqueeze")
            return
    x = np.arange(start.elements(), dtype=np.float32).reshape(start.lens())
    wanted = x
    for op, _ in ops:
        wanted = op.compute(wanted)
    made = views.ops()
    found = x
    for op in made:
        found = op.compute(found)
    np.testing.assert_array_equal(found, wanted)
    assert len(made) <= 5


def read(dims, *steps):
    views = ViewChain(dims)
    for kind, argument in steps:
        assert getattr(views, kind)(argument)
    return [repr(op) for op in views.ops()]


def test_the_shortest_list_is_read_off():
    n = dim.symbol("n", 1, 9)
    assert read((2, 3), ("transpose", (1, 0)), ("transpose", (1, 0))) == []
    assert read((2, 3, 4), ("reshape", (6, 4)), ("reshape", (2, 3, 4))) == []
    assert read((n, 6), ("reshape", (n, 2, 3)), ("transpose", (1, 2, 0)), ("reshape", (6, n))) == [
        "transpose[permutation=[1, 0]]"
    ]
    assert read((n, 8, 12), ("reshape", (n, 8, 3, 4)), ("transpose", (0, 2, 1, 3)), ("reshape", (n * 3, 8, 4))) == [
        "reshape[dims=[n, 8, 3, 4], allowzero=false]",
        "transpose[permutation=[0, 2, 1, 3]]",
        "reshape[dims=[3*n, 8, 4], allowzero=false]",
    ]
    assert read((3,), ("reshape", (3, 1)), ("spread", (2, 3, 4))) == [
        "unsqueeze[axes=[1]]",
        "multibroadcast[out_lens=[2, 3, 4]]",
    ]


def test_indivisible_extents_are_not_followed():
    n, m = dim.symbol("n", 1, 9), dim.symbol("m", 1, 9)
    assert not ViewChain((6, 2)).reshape((4, 3))
    assert not ViewChain((n, 2)).reshape((m, 2))
    assert not ViewChain((2, 3)).spread((4, 3))
    assert ViewChain((n, m)).reshape((n * m,))


def test_cost_model_prefers_free_ops():
    turn, shape = make("transpose", permutation=(1, 0)), make("reshape", dims=(6,))
    wide = make("multibroadcast", out_lens=(2, 3))
    assert cost([shape]) < cost([turn])
    assert cost([shape, wide]) < cost([wide, shape])
    assert [repr(op) for op in regrouping((1, 2, 3), (2, 3), units=True)] == ["squeeze[axes=[0]]"]
    assert [repr(op) for op in regrouping((2, 0), (0, 5))] == ["reshape[dims=[0, 5], allowzero=true]"]
