"""Cases of products, recurrent layers and attention."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .case import Case, normal, one, whole


def products() -> Iterator[Case]:
    """Yields MatMul, Gemm, integer products, Einsum, Det, recurrent layers and attention."""
    for a, b in (
        ((1, 1024), (1024, 1024)), ((1, 4096), (4096, 1000)), ((4, 768), (768, 768)), ((128, 768), (768, 3072)),
        ((10_000, 8), (8, 8)), ((8, 10_000), (10_000, 8)), ((100_000, 3), (3, 3)), ((1000, 1000), (1000, 1)), ((1000,), (1000, 500)),
        ((2000, 64), (64, 1)), ((1000, 1), (1, 1000)), ((500, 2), (2, 500)), ((37, 211), (211, 53)),
        ((1000, 4, 4), (1000, 4, 4)), ((5000, 3, 3), (5000, 3, 1)), ((96, 64, 32), (96, 32, 64)), ((96, 1, 64), (96, 64, 128)),
        ((64, 10, 32), (32, 16)), ((8, 1, 49, 32), (1, 12, 32, 49)), ((1, 64, 64), (32, 64, 64)), ((64, 64), (32, 64, 64)),
        ((128, 128), (128, 128)), ((512, 512), (512, 512)),
    ):  # fmt: skip
        yield one("MatMul", f"{a} {b}", normal(*a), normal(*b))
        if len(b) == 2:
            yield one("MatMul", f"{a} {b} constant", normal(*a), normal(*b), constants=[1])
    for ta in (0, 1):
        for tb in (0, 1):
            a, b = ((300, 200) if ta else (200, 300)), ((250, 300) if tb else (300, 250))
            yield one("Gemm", f"transA={ta} transB={tb}", normal(*a), normal(*b), normal(250), transA=ta, transB=tb)
    yield one(
        "Gemm",
        "alpha beta column",
        normal(64, 256),
        normal(256, 512),
        normal(64, 1),
        constants=[1, 2],
        alpha=0.5,
        beta=2.0,
    )
    for dtype in (np.float64, np.float16):
        yield one("MatMul", f"{dtype.__name__} 200", normal(200, 200).astype(dtype), normal(200, 200).astype(dtype))
    yield one("MatMul", "int32 100", whole(9, 100, 100, dtype=np.int32), whole(9, 100, 100, dtype=np.int32))
    yield one("MatMul", "int64 100", whole(9, 100, 100), whole(9, 100, 100))
    for m in (1, 64):
        yield one(
            "MatMulInteger",
            f"({m}, 512, 512)",
            whole(255, m, 512, dtype=np.uint8),
            whole(127, 512, 512, dtype=np.int8),
            constants=[1],
        )
    for equation, shapes in (
        ("bij,bjk->bik", [(16, 64, 32), (16, 32, 64)]), ("ij,ij->i", [(1000, 500), (1000, 500)]), ("bhid,bhjd->bhij", [(2, 8, 128, 64)] * 2),
        ("i,j->ij", [(1000,), (800,)]), ("bij->bji", [(16, 200, 200)]), ("ii->i", [(1000, 1000)]), ("ij->", [(1000, 1000)]),
        ("bcxd,bcyd->bxyc", [(2, 4, 64, 32), (2, 4, 64, 32)]), ("abc,cd,ae->bde", [(20, 30, 40), (40, 20), (20, 10)]), ("nchw,c->nhw", [(4, 64, 32, 32), (64,)]),
        ("bnhd,hde->bne", [(4, 128, 8, 32), (8, 32, 256)]), ("ijk,ilk->ijl", [(50, 40, 8), (50, 30, 8)]),
    ):  # fmt: skip
        yield one("Einsum", equation, *(normal(*s) for s in shapes), equation=equation)
    yield one("Det", "(1000, 4, 4)", normal(1000, 4, 4))
    yield one("Det", "(10, 64, 64)", normal(10, 64, 64))
    yield from _recurrent()
    yield from _attention()


def _recurrent() -> Iterator[Case]:
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, batch, width, hidden, direction in (
            (100, 1, 64, 128, "forward"), (100, 16, 64, 128, "bidirectional"), (10, 16, 128, 128, "forward"), (500, 1, 32, 32, "bidirectional"),
            (50, 4, 20, 30, "reverse"), (1, 1, 256, 512, "forward"),
        ):  # fmt: skip
            d = 2 if direction == "bidirectional" else 1
            given = [
                normal(steps, batch, width),
                normal(d, gates * hidden, width) / 10,
                normal(d, gates * hidden, hidden) / 10,
                normal(d, 2 * gates * hidden) / 10,
            ]
            yield one(
                op,
                f"{steps}x{batch} {width}-{hidden} {direction}",
                *given,
                constants=[1, 2, 3],
                outputs=2,
                hidden_size=hidden,
                direction=direction,
            )
    given = [
        normal(50, 16, 64),
        normal(1, 512, 64) / 10,
        normal(1, 512, 128) / 10,
        normal(1, 1024) / 10,
        whole(50, 16, dtype=np.int32, low=1),
    ]
    yield one("LSTM", "lengths", *given, constants=[1, 2, 3], outputs=2, hidden_size=128)
    yield one("LSTM", "lengths, last cells", *given, constants=[1, 2, 3], outputs=3, hidden_size=128)
    given = [normal(50, 16, 64), normal(1, 384, 64) / 10, normal(1, 384, 128) / 10, normal(1, 768) / 10]
    yield one(
        "GRU", "linear_before_reset", *given, constants=[1, 2, 3], outputs=2, hidden_size=128, linear_before_reset=1
    )


def _attention() -> Iterator[Case]:
    for b, h, kv, s, t, d in (
        (1, 12, 12, 128, 128, 64),
        (8, 8, 8, 64, 64, 32),
        (1, 16, 4, 1, 1024, 64),
        (1, 8, 8, 512, 512, 64),
        (2, 4, 4, 200, 77, 40),
    ):
        q, k, v = normal(b, h, s, d), normal(b, kv, t, d), normal(b, kv, t, d)
        yield one("Attention", f"({b}, {h}/{kv}, {s}, {t}, {d})", q, k, v, opset=23)
        yield one("Attention", f"({b}, {h}/{kv}, {s}, {t}, {d}) mask", q, k, v, normal(s, t), opset=23)
        if s == t:
            yield one("Attention", f"({b}, {h}/{kv}, {s}, {t}, {d}) causal", q, k, v, opset=23, is_causal=1)
            yield one("Attention", f"({b}, {h}/{kv}, {s}, {t}, {d}) softcap", q, k, v, opset=23, softcap=30.0)
    for h, kv, s, past, d in ((8, 2, 1, 512, 64), (8, 8, 1, 1024, 64), (8, 2, 64, 0, 64), (16, 4, 16, 128, 64)):
        q, k, v = normal(1, s, h * d), normal(1, s, kv * d), normal(1, s, kv * d)
        lengths, total = np.array([past + s - 1], np.int32), np.array(past + s, np.int32)
        given = (q, k, v, normal(1, kv, past, d), normal(1, kv, past, d), lengths, total)
        yield one(
            "GroupQueryAttention",
            f"{h}/{kv} {s} after {past}",
            *given,
            outputs=3,
            domain="com.microsoft",
            num_heads=h,
            kv_num_heads=kv,
            constants=[6],
        )
    q, k, v = normal(1, 64, 512), normal(1, 64, 128), normal(1, 64, 128)
    given = (q, k, v, None, None, np.array([63], np.int32), np.array(64, np.int32))
    yield one(
        "GroupQueryAttention",
        "softcap, window",
        *given,
        outputs=3,
        domain="com.microsoft",
        num_heads=8,
        kv_num_heads=2,
        softcap=30.0,
        local_window_size=16,
        constants=[6],
    )
    yield one(
        "MultiHeadAttention",
        "128x768",
        normal(1, 128, 768),
        normal(1, 128, 768),
        normal(1, 128, 768),
        domain="com.microsoft",
        num_heads=12,
    )
