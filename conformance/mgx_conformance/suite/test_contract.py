"""The contract between an executable and its callers, for every target."""

from __future__ import annotations

import gc
import importlib.util
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core
from mgx_conformance.claims import false_claims, launches, watched
from mgx_conformance.foreign import FOREIGN, NAME, VALUE, plans_for, program_of
from mgx_conformance.guard import Guarded
from mgx_conformance.held_memory import most_resident, objects_left, pages_left
from mgx_conformance.programs import doubling, layers, measured, passing_through, symbolic, values
from mgx_conformance.runs import arrays, judge, layouts_of, same
from mgx_core import ParameterError
from mgx_core.plugins.manager import manager

RUNS = 1000


@pytest.fixture
def program(mgx_target: Any) -> Any:
    made = layers()
    made.compile(mgx_target)
    return made


def test_right(program: Any) -> None:
    for seed in range(3):
        judge(program, layers(), values(program, seed))


@pytest.mark.parametrize("op", FOREIGN, ids=lambda op: op.name.rpartition(".")[2])
def test_foreign_kernel_runs(mgx_target: Any, monkeypatch: pytest.MonkeyPatch, op: Any) -> None:
    """The kernel that a plugin offers for this target runs, and the placement names it."""
    plugins, foreign = manager(), plans_for(mgx_target.name, type(op))
    own = plugins.kernels
    monkeypatch.setattr(plugins, "kernels", lambda target: foreign if target == mgx_target.name else own(target))
    program = program_of(op)
    program.compile(mgx_target)
    (result,) = arrays(program, values(program, 0))
    assert (np.asarray(result) == VALUE).all(), f"another kernel ran: {result}"
    assert program.executable is not None
    placed = [p.kernel for p in program.executable.instances()[-1].placements if p.op == repr(op)]
    assert placed == [NAME], f"the placement names {placed}"


def test_extents_of_unread_values(mgx_target: Any) -> None:
    program = measured()
    program.compile(mgx_target)
    for seed in range(3):
        judge(program, measured(), values(program, seed))


def test_repeatable(program: Any) -> None:
    """The same inputs give bitwise equal results."""
    feed = values(program, 0)
    first = arrays(program, feed)
    for n in range(20):
        arrays(program, values(program, n))
        assert same(arrays(program, feed), first), f"run {n} gave other bits"


def test_compiles_alike(program: Any, mgx_target: Any) -> None:
    """Two compilations give bitwise equal results."""
    again = layers()
    again.compile(mgx_target)
    feed = values(program, 1)
    assert same(arrays(again, feed), arrays(program, feed))


def test_program_stays(mgx_target: Any) -> None:
    """Compiling works on a copy: the program can be compiled again, and with other options."""
    source = layers()
    text = source.get_main_module()
    before = [repr(i) for i in text]
    source.compile(mgx_target)
    source.compile(mgx_target, optimize=False)
    assert [repr(i) for i in text] == before
    judge(source, layers(), values(source, 2))


def test_threads(program: Any) -> None:
    """Eight threads on one executable, each with its own inputs, get the results of a single thread."""
    feeds = [values(program, n) for n in range(8)]
    wanted = [arrays(program, feed) for feed in feeds]
    wrong: list[str] = []
    start = threading.Barrier(8)

    def work(n: int) -> None:
        try:
            start.wait()
            for turn in range(25):
                if not same(arrays(program, feeds[n]), wanted[n]):
                    wrong.append(f"thread {n}, run {turn}: other results than alone")
                    return
        except Exception as error:
            wrong.append(f"thread {n}: {type(error).__name__}: {error}")

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong, wrong[0]


@pytest.mark.parametrize("format", ["msgpack", "json"])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "uncompiled"])
def test_save_and_load(compiled: bool, format: str, mgx_target: Any, tmp_path: Path) -> None:
    if importlib.util.find_spec("mgx_core.store") is None:
        pytest.skip("this mgx-core has no store")
    source = layers()
    reference = layers()
    reference.compile(mgx_target)
    if compiled:
        source.compile(mgx_target)
    mgx_core.save(source, tmp_path / "program.mgx", format=format)
    loaded = mgx_core.load(tmp_path / "program.mgx")
    if not loaded.is_compiled():
        loaded.compile(mgx_target)
    feed = values(source, 3)
    assert same(arrays(loaded, feed), arrays(reference, feed))


WRONG: dict[str, tuple[Any, str]] = {
    "missing": (lambda f: {k: v for k, v in f.items() if k != "scale"}, "scale"),
    "unknown": (lambda f: f | {"extra": f["x"]}, "extra"),
    "dtype": (lambda f: f | {"x": f["x"].astype(np.float64)}, "x"),
    "rank": (lambda f: f | {"x": f["x"][0]}, "x"),
    "extent": (lambda f: f | {"x": np.zeros((4, 25), np.float32)}, "x"),
    "no-tensor": (lambda f: f | {"x": object()}, ""),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_input(fault: str, program: Any) -> None:
    """It is rejected with an error that names the parameter, and the executable remains usable."""
    change, name = WRONG[fault]
    feed = values(program, 4)
    wanted = arrays(program, feed)
    with pytest.raises(ParameterError) as caught:
        program.run(change(feed))
    assert repr(name) in str(caught.value) or not name, f"{caught.value} does not name {name!r}"
    assert same(arrays(program, feed), wanted)


def test_growth_refused(mgx_target: Any) -> None:
    """A loop that would exhaust memory is refused by extrapolation, before it allocates it."""
    program = doubling()
    program.compile(mgx_target)
    before = most_resident()
    with pytest.raises(mgx_core.MgxError, match="limit_bytes"):
        program.run({"x": np.ones(2, np.float32)})
    grown = most_resident() - before
    assert grown < 1 << 30, f"{grown} bytes were taken before the refusal"


def test_inputs_stay(program: Any) -> None:
    feed = values(program, 5)
    guards = {name: Guarded(value) for name, value in feed.items()}
    arrays(program, {n: g.array for n, g in guards.items()})
    for name, guard in guards.items():
        assert not guard.broken(), f"{name}: {guard.broken()}"


def test_inputs_in_any_layout(program: Any) -> None:
    """Transposed, reversed, strided and misaligned memory, and read-only memory."""
    feed = values(program, 6)
    wanted = arrays(program, feed)
    for word, form in layouts_of(feed["x"]).items():
        assert same(arrays(program, feed | {"x": form}), wanted), word


def test_outputs_survive(program: Any) -> None:
    """Results of a run do not change when the executable runs again."""
    results = arrays(program, values(program, 7))
    kept = [r.copy() for r in results]
    for n in range(30):
        arrays(program, values(program, n))
    assert same(results, kept)


def test_outputs_outlive(mgx_target: Any) -> None:
    """Results stay right after the executable is gone."""
    source = layers()
    source.compile(mgx_target)
    results = arrays(source, values(source, 8))
    kept = [r.copy() for r in results]
    del source
    gc.collect()
    _ = [np.full((64, 64), 7.0) for _ in range(50)]
    assert same(results, kept)


def test_some_outputs(program: Any) -> None:
    """A run for a subset of its results returns only these, in the requested order, bitwise equal to a whole run."""
    feed = values(program, 14)
    whole = dict(zip(program.get_output_names(), arrays(program, feed), strict=True))
    names = list(whole)
    for asked in ([names[1]], names[::-1], names[:2], []):
        given = [a.value for a in program.run(feed, outputs=asked)]
        assert len(given) == len(asked), f"{len(given)} results for {asked}"
        assert same(given, [whole[n] for n in asked]), f"other bits for {asked}"


@pytest.mark.parametrize("make", [measured, passing_through], ids=["measured", "passing-through"])
def test_some_outputs_of_any_kind(mgx_target: Any, make: Any) -> None:
    """Also if extents depend on data, or a result is a parameter, a literal or another result: each owns its memory."""
    program = make()
    program.compile(mgx_target)
    feed = values(program, 15)
    names = program.get_output_names()
    for n, name in [*enumerate(names), *enumerate(names)]:  # the first run, and later ones
        (given,) = [a.value for a in program.run(feed, outputs=[name])]
        assert same([given], [arrays(program, feed)[n]]), f"other bits for {name}"
        assert not any(np.shares_memory(given, x) for x in feed.values()), f"{name} lies in an input"
        given[...] = 99


def test_outputs_own_memory(mgx_target: Any) -> None:
    """Also if a result is a parameter, a literal, a view, or another result."""
    source = passing_through()
    source.compile(mgx_target)
    feed = values(source, 9)
    x = feed["x"]
    results = arrays(source, feed)
    judge(source, passing_through(), feed)
    for i, a in enumerate(results):
        assert a.flags.writeable, f"result {i} cannot be written"
        assert not np.shares_memory(a, x), f"result {i} lies in an input"
        for j, b in enumerate(results[:i]):
            assert not np.shares_memory(a, b), f"results {j} and {i} share memory"
    for a in results:
        a[...] = 99
    judge(source, passing_through(), feed)


def test_symbolic(mgx_target: Any) -> None:
    """One compilation serves every extent within its bounds; a shape used before is not compiled again."""
    source: Any = symbolic()
    source.compile(mgx_target)
    for rows in (1, 2, 3, 17, 64, 2):
        judge(source, symbolic(), values(source, rows, rows))
    before = {id(i) for i in source.executable.instances()}
    arrays(source, values(source, 1, 17))
    assert {id(i) for i in source.executable.instances()} == before
    with pytest.raises(ParameterError, match="'x'"):
        source.run(values(source, 1, 65))


def test_instances_bounded(mgx_target: Any) -> None:
    source: Any = symbolic()
    source.compile(mgx_target, instances=3)
    for rows in range(1, 9):
        arrays(source, values(source, rows, rows))
    assert len(source.executable.instances()) <= 3


def test_placement_honest(program: Any) -> None:
    """Each launch is reported with a kernel's name, and with a reason if it is on the host; no claim is false."""
    with watched() as evaluated:
        arrays(program, values(program, 10))
    why = false_claims(program.executable, evaluated)
    assert not why, why
    for instance in program.executable.instances():
        for p in instance.placements:
            assert p.place in ("target", "host")
            assert p.kernel, p
            assert p.refused or p.place == "target", f"{p.op} is on the host without a reason"
        on_host = sum(i.op.place == "host" for i in launches(instance.module))
        assert on_host <= sum(p.place == "host" for p in instance.placements)


def test_no_leak(program: Any, record_property: Any) -> None:
    """A thousand runs leak neither Python objects nor pages."""
    feed = values(program, 11)
    for _ in range(RUNS // 4):
        program.run(feed)
    grown = pages_left(lambda: program.run(feed), RUNS)
    record_property("rss_growth", grown)
    assert grown < RUNS * 512, f"{RUNS} runs took {grown} bytes more"  # a leak of one small buffer per run is larger
    grown = objects_left(lambda: program.run(feed), RUNS // 10, RUNS // 2)
    # less than an object per run
    assert grown < RUNS // 2 * 16, f"{RUNS // 2} runs left {grown} bytes of Python objects"


def test_executable_dies(mgx_target: Any) -> None:
    """Nothing references an executable once the caller releases it."""
    source = layers()
    source.compile(mgx_target)
    arrays(source, values(source, 12))
    seen = weakref.ref(source.executable)
    del source
    gc.collect()
    assert seen() is None


def test_contexts(mgx_target: Any) -> None:
    """A program compiles on a context as on its target."""
    source, other = layers(), layers()
    source.compile(mgx_target.get_context())
    other.compile(mgx_target)
    feed = values(source, 13)
    assert same(arrays(source, feed), arrays(other, feed))
