"""The stages from normalize to fuse on one small program of each kind: fewer instructions, equal results."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.compile.stages import optimize_module
from mgx_core.ir.module import Module, nested
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.options import CompileOptions
from mgx_core.types.shape import Shape

RANDOM = np.random.default_rng(5)


class Draft:
    """A concise builder of programs."""

    def __init__(self) -> None:
        self.main = Module()

    def __call__(self, name: str, *inputs, **attributes):
        return self.main.add(STANDARD.make(name, **attributes), *inputs)

    def parameter(self, name: str, *lens: int):
        return self.main.add_parameter(name, Shape("float", lens))

    def constant(self, *lens: int, like=None, number: float | None = None):
        value = RANDOM.uniform(0.5, 1.5, lens) if number is None else np.full(lens, number)
        made = self.main.add_literal(np.asarray(value, np.float32))
        return made if like is None else self("multibroadcast", made, out_lens=like.shape.dims)

    def done(self, *outputs) -> Module:
        self.main.add_return(outputs)
        return self.main


def convolution_and_batchnorm() -> Module:
    d = Draft()
    x = d.parameter("x", 2, 3, 6, 6)
    x = d("pad", x, pads=(0, 0, 1, 1, 0, 0, 1, 1))
    y = d("convolution", x, d.constant(4, 3, 3, 3))
    y = d("sub", y, d.constant(4, 1, 1, like=y))
    y = d("mul", y, d.constant(4, 1, 1, like=y))
    y = d("relu", d("add", y, d.constant(4, 1, 1, like=y)))
    return d.done(d("pooling", y, mode="average", lengths=(6, 6)))


def attention() -> Module:
    d = Draft()
    x = d.parameter("x", 5, 8)

    def heads():
        y = d("dot", x, d.constant(8, 8))
        y = d("add", y, d.constant(8, like=y))
        return d("transpose", d("reshape", y, dims=(5, 2, 4)), permutation=(1, 0, 2))

    q, k, v = heads(), heads(), heads()
    scores = d("dot", q, d("transpose", k, permutation=(0, 2, 1)))
    scores = d("div", scores, d.constant(like=scores, number=2.0))
    top = d("multibroadcast", d("reduce_max", scores, axes=(2,)), out_lens=scores.shape.dims)
    powers = d("exp", d("sub", scores, top))
    weights = d("div", powers, d("multibroadcast", d("reduce_sum", powers, axes=(2,)), out_lens=scores.shape.dims))
    out = d("transpose", d("dot", weights, v), permutation=(1, 0, 2))
    return d.done(d("reshape", out, dims=(5, 8)))


def layernorm_and_gelu() -> Module:
    d = Draft()
    x = d.parameter("x", 3, 8)
    c = d("sub", x, d("multibroadcast", d("reduce_mean", x, axes=(-1,)), out_lens=(3, 8)))
    var = d("reduce_mean", d("pow", c, d.constant(like=c, number=2.0)), axes=(-1,))
    root = d("sqrt", d("add", var, d.constant(like=var, number=1e-5)))
    y = d("div", c, d("multibroadcast", root, out_lens=(3, 8)))
    y = d("add", d("mul", y, d.constant(8, like=y)), d.constant(8, like=y))
    y = d("dot", y, d.constant(8, 8))
    e = d("erf", d("div", y, d.constant(like=y, number=2**0.5)))
    y = d("mul", d("mul", y, d("add", e, d.constant(like=y, number=1.0))), d.constant(like=y, number=0.5))
    return d.done(y)


def channels_last() -> Module:
    d = Draft()
    x = d.parameter("x", 2, 5, 5, 3)
    for _ in range(2):
        c = x.shape.dims[3]
        y = d("convolution", d("transpose", x, permutation=(0, 3, 1, 2)), d.constant(4, c, 3, 3), padding=(1, 1))
        y = d("transpose", y, permutation=(0, 2, 3, 1))
        x = d("relu", d("add", y, d.constant(4, like=y)))
    return d.done(d("reduce_mean", x, axes=(1, 2)))


def gates() -> Module:
    d = Draft()
    x = d.parameter("x", 3, 8)
    y = d("dot", x, d.constant(8, 12))
    parts = [d("sigmoid", d("slice", y, axes=(1,), starts=(n,), ends=(n + 4,))) for n in (0, 4, 8)]
    return d.done(d("concat", d("mul", parts[0], parts[1]), d("concat", parts[2], axis=1), axis=1))


def siblings() -> Module:
    d = Draft()
    x = d.parameter("x", 3, 8)
    parts = [d("dot", x, d.constant(8, n)) for n in (4, 6)]
    parts = [d("relu", d("add", y, d.constant(y.shape.dims[1], like=y))) for y in parts]
    return d.done(*(d("mul", y, d.constant(y.shape.dims[1], like=y)) for y in parts))


def put_together() -> Module:
    d = Draft()
    x = d.parameter("x", 3, 8)
    return d.done(d("concat", *(d("dot", x, d.constant(8, n)) for n in (4, 6)), axis=1))


PROGRAMS = [convolution_and_batchnorm, attention, layernorm_and_gelu, channels_last, gates, siblings, put_together]


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "options",
    [{}, {"aggressiveness": 0}, {"fast_math": False}, {"aggressiveness": 2}, {"optimize": False}],
    ids=str,
)
def test_results_stay(make, options, run_both):
    before = make()
    text = before.text(full=True)
    module = parse_module(text, STANDARD)
    optimize_module(module, CompileOptions(validate=True, **options))
    assert verify(module) == []
    run_both(before, module)


def work(module: Module) -> list[str]:
    """Counts the instructions of the main module that would run."""
    return [i.name for i in module if not (i.is_param or i.is_literal or i.is_return or i.op.view)]


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (convolution_and_batchnorm, ["convolution", "fused_reduce"]),
        (attention, ["group", "group"]),
        (layernorm_and_gelu, ["layernorm", "group"]),
        (channels_last, ["group", "group", "fused_reduce"]),
        (gates, ["group", "pointwise", "concat"]),
        (siblings, ["group"]),
        (put_together, ["dot"]),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_work_is_joined(make, left):
    module = make()
    optimize_module(module, CompileOptions())
    assert work(module) == left


def test_a_convolution_absorbs_its_normalization_and_padding():
    module = convolution_and_batchnorm()
    optimize_module(module, CompileOptions())
    inside = [i for m in nested(module) for i in m]
    (convolution,) = (i for i in inside if i.name == "convolution")
    assert convolution.op.padding == (1, 1, 1, 1)
    assert not [i for i in inside if i.name in ("mul", "sub", "pad", "pooling")]
