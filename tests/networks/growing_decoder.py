"""One step of a decoder whose cache grows with each token, for tests of programs with changing shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core.types.dim import symbol

__all__ = ["WIDTH", "close", "decoder", "fed", "weights"]

WIDTH = 16


def weights(layers: int) -> list[list[Any]]:
    rng = np.random.default_rng(5)
    return [[(rng.standard_normal((WIDTH, WIDTH)) / 4).astype(np.float32) for _ in range(4)] for _ in range(layers)]


def decoder(layers: int, target: Any, **options: Any) -> mgx.Program:
    """Returns the compiled program: each layer appends to its cache and attends to the unmasked entries.

    It returns the hidden state, the caches, and the hidden state again.
    """
    program = mgx.Program()
    m = program.get_main_module()
    t = symbol("t", 0, 512)
    x = m.add_parameter("x", mgx.Shape("float32", [1, WIDTH]))
    seen = m.add_parameter("seen", mgx.Shape("int64", [t + 1]))
    past = [m.add_parameter(f"past{n}", mgx.Shape("float32", [t, WIDTH])) for n in range(layers)]
    hidden = m.add(mgx.op("equal"), seen, m.add(mgx.op("multibroadcast", out_lens=[t + 1]), m.add_literal(np.int64(0))))
    mask = m.add(mgx.op("convert", target_type="float32"), hidden)
    low = m.add(mgx.op("multibroadcast", out_lens=[t + 1]), m.add_literal(np.float32(-1e9)))
    mask = m.add(mgx.op("unsqueeze", axes=[0]), m.add(mgx.op("mul"), mask, low))
    results = []
    for n, (wq, wk, wo, wm) in enumerate(weights(layers)):
        q, k = (m.add(mgx.op("dot"), x, m.add_literal(w)) for w in (wq, wk))
        cache = m.add(mgx.op("concat", axis=0), past[n], k)
        scores = m.add(mgx.op("dot"), q, m.add(mgx.op("transpose", permutation=[1, 0]), cache))
        attended = m.add(mgx.op("softmax", axis=-1), m.add(mgx.op("add"), scores, mask))
        y = m.add(mgx.op("dot"), m.add(mgx.op("dot"), attended, cache), m.add_literal(wo))
        x = m.add(mgx.op("add"), x, m.add(mgx.op("tanh"), m.add(mgx.op("dot"), y, m.add_literal(wm))))
        results.append(cache)
    m.add_return([x, *results, x])
    program.compile(target, **options)
    return program


def fed(layers: int, length: int) -> dict[str, Any]:
    """Returns inputs for a cache of a given length."""
    rng = np.random.default_rng(length)
    past = {f"past{n}": rng.standard_normal((length, WIDTH)).astype(np.float32) for n in range(layers)}
    seen = rng.integers(0, 3, length + 1)
    seen[-1] = 1
    return {"x": rng.standard_normal((1, WIDTH)).astype(np.float32), "seen": seen, **past}


def expected(layers: int, given: dict[str, Any]) -> list[Any]:
    x, caches = given["x"].astype(np.float64), []
    for n, (wq, wk, wo, wm) in enumerate(weights(layers)):
        cache = np.concatenate([given[f"past{n}"], x @ wk])
        scores = np.where(given["seen"] == 0, -1e9, 0.0) + x @ wq @ cache.T
        e = np.exp(scores - scores.max())
        x = x + np.tanh(e / e.sum() @ cache @ wo @ wm)
        caches.append(cache)
    return [x, *caches, x]


def close(layers: int, results: Any, given: dict[str, Any]) -> None:
    """Compares results with numpy's."""
    for one, want in zip(results, expected(layers, given), strict=True):
        np.testing.assert_allclose(one.to_numpy(), want, rtol=2e-4, atol=2e-5)
