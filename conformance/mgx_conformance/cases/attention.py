"""Cases of attention, rotary embeddings and caches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mgx_core import Shape, dtype
from mgx_core.ops import STANDARD

from .case import FLOATS, LAYOUTS, Case, Family, data, given

__all__ = ["family"]

family = Family("attention")
make = STANDARD.make
F = dtype.float32


@family.cases("attention")
def attention(name: str) -> Iterable[Case]:
    for n, kind in enumerate(FLOATS):
        q, k, v = data(kind, 2, 4, 5, 8), data(kind, 2, 4, 7, 8), data(kind, 2, 4, 7, 6)
        yield Case(make(name), (q, k, v), "plain", LAYOUTS if n == 0 else LAYOUTS[:1])
        if n > 1:
            continue
        grouped = (q, data(kind, 2, 2, 7, 8), data(kind, 2, 2, 7, 6))
        yield Case(make(name), grouped, "grouped", LAYOUTS[:3])
        yield Case(make(name, causal=True), (q, k, v), "causal")
        yield Case(make(name, causal=True, offset=2), (q, k, v), "offset")
        yield Case(make(name, scale=0.3, softcap=0.7), (q, k, v), "softcap")
        yield Case(make(name, left_window_size=2, right_window_size=1), (q, k, v), "window")
        yield Case(make(name), (q, k, v, data(kind, 5, 7)), "mask")
        some = np.random.default_rng(2).random((2, 1, 5, 7)) < 0.7
        yield Case(make(name), (q, k, v, given(some)), "bool-mask")
        nothing = np.ones((5, 7), bool)
        nothing[2] = False
        yield Case(make(name), (q, k, v, given(nothing)), "row-without-keys")
        yield Case(make(name), (q, k, v, None, given([7, 3])), "lengths")
        yield Case(make(name, causal=True), (q, k, v, None, given([6, 4]), given([1, 0])), "lengths-offsets")
        yield Case(make(name), (q, k, v, None, None, None, data(kind, 4)), "sink")
        for stage in ("scores", "capped", "masked", "probabilities"):
            yield Case(make(name, result_of=stage, softcap=2.0), (q, k, v, data(kind, 5, 7)), f"stage-{stage}")
    long = (data(F, 1, 2, 65, 32), data(F, 1, 2, 129, 32), data(F, 1, 2, 129, 32))
    yield Case(make(name), long, "long")
    decode = (data(F, 2, 4, 1, 16), data(F, 2, 2, 33, 16), data(F, 2, 2, 33, 16))
    yield Case(make(name, causal=True, offset=32), decode, "decode")


def scaled(program: Any, name: str, dims: tuple[int, ...]) -> Any:
    module = program.create_module(name)
    x = module.add_parameter("x", Shape("float32", dims))
    module.add_return([module.add(make("mul"), x, module.add(make("multibroadcast", out_lens=dims), module.add_literal(
        np.full((1,), 1.5, np.float32))))])  # fmt: skip
    return module


@family.cases("flex_attention")
def flex_attention(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        q, k, v = data(kind, 2, 4, 5, 8), data(kind, 2, 2, 7, 8), data(kind, 2, 2, 7, 6)
        yield Case(make(name), (q, k, v), "plain", LAYOUTS[:3])

        def both(program: Any) -> Sequence[Any]:
            return [scaled(program, "score", (2, 4, 5, 7)), scaled(program, "prob", (2, 4, 5, 7))]

        yield Case(make(name, score_mod=True, prob_mod=True), (q, k, v), "modules", modules=both)


@family.cases("linear_attention")
def linear_attention(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        q, k, v = data(kind, 2, 3, 8), data(kind, 2, 3, 4), data(kind, 2, 3, 6)
        heads: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}
        state, decay, beta = data(kind, 2, 2, 2, 3), data(kind, 2, 3, 2, high=0), data(kind, 2, 3, 2, low=0)
        yield Case(make(name, update_rule="linear", **heads), (q, k, v), "linear", LAYOUTS[:3])
        yield Case(make(name, update_rule="gated", **heads), (q, k, v, None, decay), "gated")
        yield Case(make(name, update_rule="delta", **heads), (q, k, v, state, None, beta), "delta")
        yield Case(make(name, update_rule="gated_delta", **heads), (q, k, v, state, decay, beta), "gated-delta")


@family.cases("rotary_embedding")
def rotary(name: str) -> Iterable[Case]:
    for n, kind in enumerate(FLOATS[:3]):
        x, cos, sin = data(kind, 2, 3, 4, 8), data(kind, 10, 4), data(kind, 10, 4)
        places = given([[0, 1, 2, 3], [5, 6, 7, 9]])
        for interleaved in (False, True):
            word = "pairs" if interleaved else "halves"
            op = make(name, interleaved=interleaved)
            yield Case(op, (x, cos, sin, places), word, LAYOUTS if n == 0 else LAYOUTS[:1])
            yield Case(op, (x, data(kind, 2, 4, 3), data(kind, 2, 4, 3)), f"{word}-partial")


@family.cases("gqa_rotary_embedding")
def gqa_rotary(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        operands = (data(kind, 2, 3, 2, 8), given([3, 5], dtype.int32), data(kind, 10, 4), data(kind, 10, 4))
        yield Case(make(name), operands, "halves", LAYOUTS[:3])
        yield Case(make(name, interleaved=True), operands, "pairs")


@family.cases("concat_past_present")
def concat_past_present(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        operands = (data(kind, 2, 3, 2, 4), given([3, 5], dtype.int32), data(kind, 2, 3, 8, 4))
        yield Case(make(name), operands, "", LAYOUTS[:3])
