"""Symbolic extents: one kernel source is correct for many extents; static extents are literals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_trial import generate, run, same, tensor, traits

import mgx_core as mgx
from mgx_core.errors import No
from mgx_core.types.shape import row_major
from mgx_gpu_hip.codegen.extents import KernelTrace, SymbolicInt, arguments, plain
from mgx_gpu_hip.codegen.generators import source_of
from mgx_gpu_hip.codegen.source import KernelSource, Tensor


def test_polynomials_are_one_however_they_were_made() -> None:
    n, m = SymbolicInt.symbol("n", 6), SymbolicInt.symbol("m", 4)
    with arguments() as recorder:
        assert f"{n * 2 + n}" == f"{3 * n}" == f"{n * 3}" != f"{n}"
        assert f"{n * m}" == f"{m * n}" and f"{(n + 1) * m - m}" == f"{m * n}"
        assert f"{n * 8 // 4}" == f"{n * 2}" and f"{n // 4}" != f"{n // 8}"
        assert f"{-(-n // 4)}" == f"{-(-n // 4)}" and f"{n % 4}" != f"{n // 4}"
    assert recorder.values == [18, 6, 24, 12, 1, 0, 2, 2]
    assert n - n == 0 and type(n - n) is int and type(n * 0) is int and type(plain(n)) is int
    assert f"{n} {n!s} {n!r} {n:03d}" == "6 6 6 006" and [0, 1, 2, 3, 4, 5, 6][n] == 6


def test_compile_time_constants_are_written_as_numbers() -> None:
    n = SymbolicInt.symbol("n", 6)
    with arguments() as recorder:
        text = f"DEV int f() {{ return {n}; }}\nKERNEL(64) k(float* q0) {{\n  SHARED(float, x, [{n}]);\n"
        text += f"  float y[{n}];\n  ldv<float, {n}>(q0);\n  if (i < {n}u) q0[i * {n * n}ull] = {n} - {n}ll;\n}}\n"
    made, added = recorder.resolved(text)
    assert "return 6;" in made and "[6]);" in made and "float y[6];" in made and "ldv<float, 6>" in made
    assert "if (i < n0x) q0[i * wide1x] = s2x - long_3x;" in made
    assert "k(float* q0, u32 n0x, u64 wide1x, i32 s2x, i64 long_3x)" in made
    assert added == {"k": [("u32", 6), ("u64", 36), ("i32", 6), ("i64", 6)]}


def test_traced_numbers_are_arguments_except_where_constants_are_required() -> None:
    trace = KernelTrace()
    n = trace.extent(6)
    with arguments() as recorder:
        text = f"KERNEL(64) k(float* q0) {{\n  if (i < {n}u) q0[i * {n * n}ull] = {n - n + 3} - {n}u;\n}}\n"
        made, added = recorder.resolved(text)
    assert "k(float* q0, u32 n0x, u64 wide1x) {\n  if (i < n0x) q0[i * wide1x] = 3 - n0x;" in made
    assert [(kind, trace.text(value)) for kind, value in added["k"]] == [("u32", "x0"), ("u64", "x0*x0")]
    test = trace.test()
    assert test(7) and not test(1 << 32)
    with arguments() as recorder:
        assert recorder.message(f"rows of {n}") == "rows of 6" and test(7)
        made, _ = recorder.resolved(f"KERNEL(64) k(float* q0) {{\n  SHARED(float, x, [{n}]);\n}}\n")
    assert "[6]);" in made and not trace.test()(7)


def test_refusals_name_the_extents_that_they_are_about() -> None:
    n = SymbolicInt.symbol("n", 6)

    def refuse(op: Any, xs: Any, ys: Any, device: Any, modules: Any) -> No:
        return No(f"rows of {n} elements")

    x = tensor("float32", (6,))
    assert source_of(refuse, mgx.op("relu"), [x], [x], traits()) == No("rows of 6 elements")


def opened(x: Tensor, names: tuple[str, ...]) -> Tensor:
    """Returns the tensor with symbols for the extents that have a name."""
    lens = tuple(SymbolicInt.symbol(s, n) if s else n for s, n in zip(names, x.lens, strict=True))
    return x._replace(lens=lens, strides=row_major(lens))


CASES: dict[str, tuple[mgx.Operation, list[Callable[[int, int], tuple[int, ...]]], list[tuple[str, ...]], tuple[str, ...]]] = {
    "pointwise": (mgx.op("add"), [lambda n, m: (n, m, 8)] * 2, [("n", "m", "")] * 2, ("n", "m", "")),
    "rows": (mgx.op("softmax", axis=2), [lambda n, m: (n, m, 40)], [("n", "m", "")], ("n", "m", "")),
    "mean": (mgx.op("reduce_mean", axes=[1]), [lambda n, m: (n, m, 12)], [("n", "m", "")], ("n", "", "")),
    "gather": (mgx.op("gather", axis=0), [lambda n, m: (7, 8), lambda n, m: (n, m)], [("", ""), ("n", "m")], ("n", "m", "")),
    "concat": (mgx.op("concat", axis=1), [lambda n, m: (n, m, 4), lambda n, m: (n, 3, 4)], [("n", "m", ""), ("n", "", "")],
               ("n", "m3", "")),
    "slice": (mgx.op("slice", axes=[2], starts=[1], ends=[5]), [lambda n, m: (n, m, 8)], [("n", "m", "")], ("n", "m", "")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wave", [32, 64])
def test_one_text_for_many_extents(name: str, wave: int) -> None:
    op, lens, names, out_names = CASES[name]
    rng = np.random.default_rng(11)
    texts: set[str] = set()
    sizes = [(3, 5), (7, 11), (9, 13), (21, 5), (16, 9), (8, 7), (5, 3), (11, 17)]
    for n, m in sizes:
        arrays: list[Any] = [
            rng.integers(-7, 7, f(n, m))
            if (name, k) == ("gather", 1)
            else rng.standard_normal(f(n, m)).astype(np.float32)
            for k, f in enumerate(lens)
        ]
        wanted = op.evaluate(arrays)
        fixed = [tensor(a.dtype, a.shape) for a in arrays]
        out = tensor(wanted.dtype, wanted.shape)
        xs, y = [opened(t, s) for t, s in zip(fixed, names, strict=True)], opened(out, out_names)
        source = generate(op, xs, [y], traits(wave))
        assert isinstance(source, KernelSource)
        texts.add(source.text)
        same(run(source, arrays, fixed, [out], wave), wanted, terms=m)
        plainly = generate(op, fixed, [out], traits(wave))
        assert isinstance(plainly, KernelSource)
        more, fewer = (sum(len(la.args) for la in s.launches) for s in (source, plainly))
        # if rows are merged, their number is an argument in any case
        assert fewer < more or plainly.text == source.text
    assert len(texts) <= 3, "\n".join(texts)
