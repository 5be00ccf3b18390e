"""Fixtures and programs of one op for tests of plans."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from run_loops import new_engine

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.emitter import CpuEmitter
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.open_program import open_program
from mgx_cpu_dnnl.target import CpuTarget

LAYOUTS = ("contiguous", "transposed", "sliced")


def laid_out(arrays: Sequence[Any], layout: str) -> dict[str, Any]:
    """Returns the inputs of `program_of` by name; None is an absent operand."""

    def stored(a: Any) -> Any:
        if layout == "transposed" and a.ndim > 1:
            return np.ascontiguousarray(a.T)
        if layout == "sliced" and a.ndim:
            return np.pad(a.view(f"u{a.itemsize}"), 1).view(a.dtype)
        return a

    return {f"x{n}": stored(a) for n, a in enumerate(arrays) if a is not None}


def program_of(
    op: mgx.Operation, arrays: Sequence[Any], layout: str = "contiguous"
) -> tuple[mgx.Program, dict[str, Any]]:
    """Returns a compiled program and its inputs, such that the op reads the arrays in a given layout; None is an absent
    operand.
    """
    program, feeds, inputs = mgx.Program(), laid_out(arrays, layout), []
    m = program.get_main_module()
    for n, a in enumerate(arrays):
        if a is None:
            inputs.append(m.add_absent())
            continue
        name, view = f"x{n}", None
        if layout == "transposed" and a.ndim > 1:
            view = mgx.op("transpose", permutation=tuple(reversed(range(a.ndim))))
        elif layout == "sliced" and a.ndim:
            ends = tuple(s + 1 for s in a.shape)
            view = mgx.op("slice", axes=tuple(range(a.ndim)), starts=(1,) * a.ndim, ends=ends)
        given = m.add_parameter(name, mgx.Shape(dt.of(a.dtype), list(feeds[name].shape)))
        inputs.append(given if view is None else m.add(view, given))
    made = m.add(op, *inputs)
    several = isinstance(made.result, mgx.TupleShape)
    count = len(made.result.items) if several else 1
    m.add_return([m.add(mgx.op("get_tuple_elem", index=i), made) for i in range(count)] if several else [made])
    program.compile(CpuTarget())
    return program, feeds


def wide(a: Any) -> Any:
    """Converts narrow floats to float32, for numpy's assertions."""
    return a.astype(np.float32) if dt.of(a.dtype) in (dt.bfloat16, dt.float16) else a


@pytest.fixture(scope="module", params=["host", "avx2"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return new_engine(request.param)


@pytest.fixture(params=LAYOUTS)
def agrees(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Checks, for every layout, that an op on arrays equals its reference implementation without a step on the host.

    others: further arrays of the same types and shapes, on which the same program runs.
    """

    def check(op: mgx.Operation, *arrays: Any, others: Sequence[Sequence[Any]] = (), tolerance: float = 0.0) -> None:
        program, _ = program_of(op, arrays, request.param)
        for given in (arrays, *others):
            feeds = laid_out(given, request.param)
            with np.errstate(all="ignore"):
                wanted = op.evaluate(given)
            for _ in range(2):
                got = [r.to_numpy() for r in program.run(feeds)]
                for a, b in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                    assert (a.dtype, a.shape) == (b.dtype, b.shape)
                    np.testing.assert_allclose(wide(a), wide(b), rtol=tolerance, atol=tolerance)
        (instance,) = program.executable.instances()
        assert [p for p in instance.placements if p.place == "host"] == []

    return check


@pytest.fixture
def agrees_open() -> Callable[..., None]:
    """Checks that an op opened for extents of its operand equals its reference implementation for these and other extents.

    dims: of the operand, where strings are symbols; constants: the other operands, arrays or None; sizes: values of the symbols,
    for which at most two programs are opened.
    """

    def check(
        op: Any,
        dims: Sequence[Any],
        constants: Sequence[Any],
        sizes: Sequence[Sequence[int]],
        tolerance: float = 1e-5,
        dtype: str = "float32",
    ) -> None:
        rng = np.random.default_rng(5)
        names = list(dict.fromkeys(d for d in dims if isinstance(d, str)))
        program = mgx.Program()
        m = program.get_main_module()
        shape = mgx.Shape(dtype, [symbol(d, 0, 9999) if isinstance(d, str) else d for d in dims])
        others = [m.add_absent() if c is None else m.add_literal(c) for c in constants]
        x = m.add_parameter("x", shape)
        made = op(x.shape.dims) if callable(op) else op
        y = m.add(made, x, *others)
        y = m.add(mgx.op("get_tuple_elem", index=0), y) if isinstance(y.result, mgx.TupleShape) else y
        m.add_return([y])
        program.compile(CpuTarget(threads=2))
        executable = program.executable
        programs: list[Any] = []
        for values in sizes:
            extents = dict(zip(names, values, strict=True))
            opened = next((p for p in programs if p.fits(extents)), None)
            if opened is None:
                opened = open_program(executable.parameters, extents, frozenset(names), executable._lowered)
                programs.append(opened)
            assert opened is not None and len(programs) <= 2
            lens = [extents.get(d, d) for d in dims]
            given = rng.integers(0, 100, lens) if shape.dtype.is_integer else rng.standard_normal(lens)
            given = given.astype(shape.dtype.numpy)
            one = op(lens) if callable(op) else op
            wanted = one.evaluate([given, *constants])
            (got,) = opened.runner.run([given])
            wanted = wanted[0] if isinstance(wanted, tuple) else wanted
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)

    return check


@pytest.fixture
def fails() -> Callable[..., None]:
    """Checks that an op on arrays fails with a message, and that the program still runs on other arrays."""

    def check(
        text: str, op: mgx.Operation, bad: Sequence[Any], good: Sequence[Any], error: Any = mgx.ShapeError
    ) -> None:
        program, _ = program_of(op, good)
        with pytest.raises(error, match=text):
            program.run({f"x{n}": a for n, a in enumerate(bad)})
        wanted = op.evaluate(good)
        got = program.run({f"x{n}": a for n, a in enumerate(good)})
        np.testing.assert_allclose(got[0].to_numpy(), wanted[0] if isinstance(wanted, tuple) else wanted, 1e-5)

    return check


def drawn_bytes(r: Any, kind: Any, lens: Any) -> Any:
    """Returns random bytes with many values at both ends of their range."""
    found = r.integers(np.iinfo(kind).min, int(np.iinfo(kind).max) + 1, lens).astype(kind)
    found[r.random(lens) < 0.3] = np.iinfo(kind).max
    found[r.random(lens) < 0.1] = np.iinfo(kind).min
    return found


@pytest.fixture
def drawn() -> Callable[..., Any]:
    """The function `drawn_bytes`."""
    return drawn_bytes


def both_results(
    program: Any, feed: dict[str, Any], threads: int = 1, fast_math: bool = True
) -> tuple[Any, Any, list[str]]:
    """Returns the results here and of the reference implementation, and the names of the steps."""
    mine, right = program.clone(), program
    mine.compile(CpuTarget(), threads=threads, fast_math=fast_math)
    right.compile(mgx.get_target("ref"), optimize=False)
    steps = [s.name for s in mine.executable.instances()[-1].runner.schedule.steps]
    return np.asarray(mine.run(feed)[0]), np.asarray(right.run(feed)[0]), steps


@pytest.fixture
def both() -> Callable[..., tuple[Any, Any, list[str]]]:
    """The function `both_results`."""
    return both_results


def copied_to_the_end_of_a_page(array: Any) -> Any:
    """Returns a copy that ends at an inaccessible page."""
    whole = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, whole + mmap.PAGESIZE)
    end = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + whole
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(end, mmap.PAGESIZE, 0) == 0
    made = np.frombuffer(pages, array.dtype, array.size, whole - array.nbytes).reshape(array.shape)
    made[...] = array
    return made


@pytest.fixture
def at_the_end_of_a_page() -> Callable[[Any], Any]:
    """The function `copied_to_the_end_of_a_page`."""
    return copied_to_the_end_of_a_page


def compiled_on_cpu(build: Any, **options: Any) -> tuple[Any, list[str]]:
    """Returns a validated program of the instructions that `build` adds, without steps on the host, and the names of its
    steps.
    """
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([build(m)])
    program.compile(CpuTarget(), validate=True, **options)
    runner = program.executable.instances()[0].runner
    assert not runner.program.hosted, runner.notes
    return program, [s.name for s in runner.schedule.steps]


@pytest.fixture
def compiled() -> Callable[..., tuple[Any, list[str]]]:
    """The function `compiled_on_cpu`."""
    return compiled_on_cpu


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collects the names of the kernels whose plans were called."""
    found: list[str] = []
    ask = CpuEmitter.run_kernel

    def noting(self: CpuEmitter, kernel: Any, *given: Any) -> Any:
        found.append(kernel.name)
        return ask(self, kernel, *given)

    monkeypatch.setattr(CpuEmitter, "run_kernel", noting)
    return found
