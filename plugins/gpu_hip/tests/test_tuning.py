"""Selection of library plans: timed, stored, and left to the library once the budget is spent."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from mgx_core import No, dtype
from mgx_core.errors import DeviceError
from mgx_gpu_hip import plan_timing
from mgx_gpu_hip.library.attention import AttentionProblem
from mgx_gpu_hip.library.cudnn_narrow import NarrowProblem
from mgx_gpu_hip.library.gemm_problem import GemmProblem
from mgx_gpu_hip.plan_builders import PlanBuilders
from mgx_gpu_hip.runtime import open_device
from mgx_gpu_hip.tuning import NARROW_PLANS, TimedPlan, Tuner

PROBLEM = GemmProblem.packed(64, 32, 16)
OTHER = GemmProblem.packed(64, 32, 48)


class Plan:
    """A plan that takes `us` microseconds."""

    workspace = 0

    def __init__(self, name: str, us: float, version: str = "1") -> None:
        self.us = us
        self.choice = {"library": "stand-in", "version": version, "plan": name}
        self.numbers: tuple[float, ...] = ()

    def with_numbers(self, numbers: Any) -> Plan:
        made = copy.copy(self)
        made.numbers = tuple(numbers)
        return made


class Library:
    """Has three plans, the second of which is the fastest; counts its queries."""

    def __init__(self, version: str = "1") -> None:
        self.all = {n: Plan(n, us, version) for n, us in (("first", 9.0), ("second", 4.0), ("third", 6.0))}
        self.asked: list[str] = []

    def another(self) -> Library:
        return self

    def versions(self, problem: Any) -> str:
        return "stand-in " + self.all["first"].choice["version"]

    def plan(self, problem: GemmProblem, choice: Any = None) -> Plan:
        self.asked.append("first" if choice is None else choice["plan"])
        return self.all[self.asked[-1]]

    def plans(self, problem: Any, count: int, compiled: bool = True, share: tuple[int, int] = (0, 1)) -> Any:
        self.asked.append("all" if share == (0, 1) else f"{share[0]} of {share[1]}")
        return list(self.all.values())[share[0] :: share[1]]


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """Creates tuners with a shared or separate cache folder."""
    monkeypatch.setattr(plan_timing, "microseconds", lambda device, plan, *rest: plan.us)

    def make(library: Any, folder: str = "a", **more: Any) -> Tuner:
        return Tuner(open_device("host", 1), library, tmp_path / folder, **more)

    return make


def test_the_fastest_is_used_and_queried_once(tuned) -> None:
    library = Library()
    tuner = tuned(library)
    assert tuner.gemm(PROBLEM).plan is library.all["second"]
    assert tuner.gemm(PROBLEM).us == 4.0
    assert library.asked == ["all"]


def test_a_few_plans_of_attention_are_timed(tuned) -> None:
    """The library's first choice was 1.6 times slower than its second."""
    library = Library()
    tuner = tuned(library)
    problem = AttentionProblem.packed(2, 4, 32, 32, 64)
    assert tuner.attention(problem).plan is library.all["second"]
    assert sorted(library.asked) == ["0 of 2", "1 of 2"]  # by threads, in any order
    assert tuner.attention(problem, exhaustive=True).plan is library.all["second"]
    assert sorted(library.asked[2:]) == sorted(f"{n} of 12" for n in range(12))
    tuner.budget = 0
    assert isinstance(tuner.attention(AttentionProblem.packed(2, 4, 48, 48, 64)), No)


@pytest.mark.parametrize("of", [dtype.int8, dtype.float8_e4m3fn])
def test_plans_of_narrow_numbers_are_timed_on_data(tuned, of) -> None:
    library: Any = Library()
    assert tuned(library).narrow(narrow_problem(of, 0.5)).plan.choice == library.all["second"].choice


def narrow_problem(of: Any, *factors: float) -> NarrowProblem:
    steps = tuple(("mul", n - 1, factor) for n, factor in enumerate(factors))
    return NarrowProblem((1, 64, 32), (1, 32, 48), (1, 64, 48), (of, of, dtype.float16), steps)


def test_layers_that_differ_in_scalars_share_a_plan(tuned) -> None:
    """cuDNN took a second to compile the engines of one layer."""
    library = Library()
    tuner = tuned(library)
    first, second = (tuner.narrow(narrow_problem(dtype.int8, 2.0, f)) for f in (0.5, 0.25))
    assert sorted(library.asked) == [f"{n} of {NARROW_PLANS}" for n in range(NARROW_PLANS)]  # by threads, in any order
    assert (first.plan.numbers, second.plan.numbers) == ((2.0, 0.5), (2.0, 0.25))
    assert first.plan.choice == second.plan.choice
    tuner.narrow(narrow_problem(dtype.int8, 0.5))
    assert len(library.asked) == 2 * NARROW_PLANS  # other steps are another problem


def test_fewer_engines_of_narrow_convolutions_are_compiled(tuned) -> None:
    """Third and fourth ones of resnet50's took a second each and never won."""
    library = Library()
    types = (dtype.int8, dtype.int8, dtype.int8)
    ones = {"stride": (1, 1), "dilation": (1, 1), "pads": ((0, 0), (0, 0))}
    tuned(library).narrow(
        NarrowProblem((1, 16, 8, 8), (32, 16, 1, 1), (1, 32, 8, 8), types, (("mul", -1, 0.5),), **ones)
    )
    assert sorted(library.asked) == ["0 of 2", "1 of 2"]


@pytest.mark.parametrize("way", ["disk", "file"])
def test_another_process_does_not_measure_again(tuned, way) -> None:
    first = tuned(Library())
    first.gemm(PROBLEM)
    first.done()
    library = Library()
    second = tuned(library, "a" if way == "disk" else "b")
    if way == "file":
        second.learn(first.choices_made())
    found = second.gemm(PROBLEM)
    assert (found.us, library.asked) == (4.0, [])  # comparing it creates nothing
    assert found.plan is library.all["second"]
    assert library.asked == ["second"]


def test_a_plan_of_another_version_is_measured_again(tuned) -> None:
    first = tuned(Library("1"))
    first.gemm(PROBLEM)
    library = Library("2")
    second = tuned(library, "b")
    second.learn(first.choices_made())
    assert second.gemm(PROBLEM).plan is library.all["second"]
    assert library.asked == ["second", "all"]


class Refusing(Library):
    """Has no plan."""

    def plan(self, problem: GemmProblem, choice: Any = None) -> Any:
        return No("no such product")

    def plans(self, problem: Any, count: int, compiled: bool = True, share: tuple[int, int] = (0, 1)) -> Any:
        super().plans(problem, count, compiled, share)
        return No("none")


@pytest.mark.parametrize("way", ["disk", "file"])
def test_another_process_does_not_repeat_refused_queries(tuned, way) -> None:
    first = tuned(Refusing())
    assert first.gemm(PROBLEM).why == "no such product"
    first.done()
    library = Refusing()
    second = tuned(library, "a" if way == "disk" else "b")
    if way == "file":
        second.learn(first.choices_made())
    assert second.gemm(PROBLEM).why == "no such product"
    assert not library.asked


def test_another_version_of_the_library_is_queried_again(tuned) -> None:
    first = tuned(Refusing())
    first.gemm(PROBLEM)
    first.done()
    library = Library("2")
    assert tuned(library).gemm(PROBLEM).plan is library.all["second"]


def test_after_many_sets_of_shapes_the_librarys_choice_is_used(tuned) -> None:
    library = Library()
    tuner = tuned(library, budget=1)
    tuner.gemm(PROBLEM)
    tuner.done()
    assert tuner.gemm(OTHER).plan is library.all["first"]
    assert tuner.gemm(PROBLEM).plan is library.all["second"]
    assert library.asked == ["all", "first"]


def test_sets_of_shapes_of_an_open_program_count_as_several(tuned) -> None:
    library = Library()
    tuner = tuned(library, budget=5)
    tuner.done(open_extents=True)
    tuner.gemm(PROBLEM)
    tuner.done(open_extents=True)
    tuner.gemm(OTHER)
    assert library.asked == ["all", "first"]


@pytest.mark.parametrize("exhaustive", [False, True])
def test_rarely_run_programs_use_known_choices_and_the_librarys(tuned, exhaustive) -> None:
    library = Library()
    tuner = tuned(library)
    tuner.gemm(PROBLEM, exhaustive=exhaustive)
    spare = tuner.untimed()
    assert spare.estimate(PROBLEM, exhaustive) is None
    assert (spare.estimate(OTHER, exhaustive) or 0) > 5.0
    assert tuner.estimate(OTHER, exhaustive) is None  # it would measure
    assert spare.gemm(PROBLEM, exhaustive=exhaustive).plan is library.all["second"]
    for _ in range(2):
        assert spare.gemm(OTHER, exhaustive=exhaustive).plan is library.all["first"]
    assert library.asked == ["all", "second", "first"]
    assert tuner.gemm(OTHER, exhaustive=exhaustive).us == 4.0  # an unmeasured choice of the other tuner is not shared


def test_a_plan_that_no_longer_exists_is_an_error(tuned) -> None:
    first = tuned(Library())
    first.gemm(PROBLEM)
    none: Any = SimpleNamespace(plan=lambda *_: No("gone"), plans=lambda *_: No("gone"), versions=lambda _: "2")
    none.another = lambda: none
    second = tuned(none, "b")
    second.learn(first.choices_made())
    with pytest.raises(DeviceError, match="gone"):
        _ = second.gemm(PROBLEM).plan


def test_an_exhaustive_search_tries_more_and_reuses_no_other_choice(tuned) -> None:
    quick, library = tuned(Library()), Library()
    quick.gemm(PROBLEM)
    quick.done()
    asked: list[tuple[int, bool]] = []
    once = library.plans
    library.plans = lambda problem, count, compiled: asked.append((count, compiled)) or once(problem, count, compiled)
    thorough = tuned(library, budget=0)
    thorough.gemm(PROBLEM, exhaustive=True)
    assert asked == [(32, True)]
    thorough.done()
    another = tuned(Library())
    assert another.gemm(PROBLEM, exhaustive=True).us == 4.0
    assert another.libraries.asked == []


def test_queries_are_prepared_by_threads_with_their_own_handles(tuned) -> None:
    library, others = Library(), []
    together = threading.Barrier(2, timeout=30)

    def another() -> Any:
        made: Any = Library()
        others.append(made)
        once = made.plans
        made.plans = lambda *given: (together.wait(), once(*given))[1]
        return made

    library.another = another
    tuner = tuned(library)

    def dry_run() -> None:
        assert tuner.gemm(PROBLEM).us > 0
        assert tuner.gemm(OTHER).plan.workspace == 0

    with tuner.prefetching(dry_run):
        found = [tuner.gemm(p) for p in (PROBLEM, OTHER)]
    assert [f.us for f in found] == [4.0, 4.0]
    assert (library.asked, [o.asked for o in others]) == ([], [["all"], ["all"]])


@pytest.mark.parametrize("problems", [[PROBLEM, OTHER], [PROBLEM]], ids=["two", "one"])
def test_engines_that_compile_kernels_are_built_by_several_threads(tuned, problems) -> None:
    """One product's three engines took 2.5 to 3.9 seconds one after another, longer than everything else."""
    together = threading.Barrier(3, timeout=30)

    class Compiling(Library):
        def plans(self, problem: Any, count: int, compiled: bool = True, share: tuple[int, int] = (0, 1)) -> Any:
            found = super().plans(problem, count, compiled, share)
            if not compiled:
                return No("no prebuilt kernel")
            assert count == 1
            together.wait()
            return found

    tuner = tuned(Compiling())
    tuner.builders = PlanBuilders(tuner.device, Compiling, threads=3)
    with tuner.prefetching(lambda: [tuner.gemm(p) for p in problems]):
        assert [tuner.gemm(p).us for p in problems] == [4.0] * len(problems)
    assert not tuner.libraries.asked


def test_plans_that_several_threads_build_are_timed_once(tuned) -> None:
    library: Any = Library()
    library.plans = lambda *given: [library.all["first"]] if given[2] else No("no prebuilt kernel")
    timed: list[int] = []
    tuner = tuned(library)
    tuner._timed = lambda sized, exhaustive, plans: timed.append(len(plans)) or TimedPlan.of(plans[0], 1.0)
    with tuner.prefetching(lambda: [tuner.gemm(p) for p in (PROBLEM, OTHER)]):
        tuner.gemm(PROBLEM)
    assert timed == [1, 1]


def test_plans_are_built_while_the_dry_run_goes_on(tuned) -> None:
    """Engines that compile kernels took longer than everything else."""
    library = Library()
    once, asked = library.plans, threading.Event()
    library.plans = lambda *given: (asked.set(), once(*given))[1]
    tuner = tuned(library)
    found: list[bool] = []
    with tuner.prefetching(lambda: (tuner.gemm(PROBLEM), found.append(asked.wait(30)))):
        assert tuner.gemm(PROBLEM).us == 4.0
    assert (library.asked, found) == (["all"], [True])


def test_answers_lead_to_questions_that_are_prepared_too(tuned) -> None:
    library = Library()
    tuner = tuned(library)
    third, fourth = (GemmProblem.packed(64, 32, k) for k in (64, 80))

    def ask() -> None:
        for first, then in ((PROBLEM, third), (OTHER, fourth)):
            if tuner.gemm(first).us == 4.0:
                tuner.gemm(then)

    with tuner.prefetching(ask):
        ask()
    assert library.asked == ["all"] * 4
    assert len(tuner.found) == 4


def test_a_dry_run_that_fails_leaves_the_questions_to_the_program(tuned) -> None:
    library = Library()
    tuner = tuned(library)

    def fail() -> None:
        raise DeviceError("no such kernel")

    with tuner.prefetching(fail):
        assert tuner.gemm(PROBLEM).us == 4.0


def test_a_problem_that_fails_during_preparation_fails_only_when_requested(tuned) -> None:
    library = Library()
    once = library.plans

    def plans(problem: GemmProblem, count: int, compiled: bool) -> Any:
        found = once(problem, count, compiled)
        if problem == OTHER:
            raise DeviceError("no memory")
        return found

    library.plans = plans
    tuner = tuned(library)
    with tuner.prefetching(lambda: [tuner.gemm(p) for p in (OTHER, PROBLEM)]):
        assert tuner.gemm(PROBLEM).us == 4.0
        assert library.asked == ["all", "all"]
        with pytest.raises(DeviceError, match="no memory"):
            tuner.gemm(OTHER)


def test_compilations_at_the_same_time_leave_nothing_behind(tuned) -> None:
    tuner = tuned(Library())
    ran: list[str] = []
    first, second = (tuner.prefetching(lambda name=name: ran.append(name)) for name in ("first", "second"))
    with ThreadPoolExecutor(1) as thread:
        first.__enter__()
        thread.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        thread.submit(second.__exit__, None, None, None).result()
        tuner.gemm(PROBLEM)
        thread.submit(tuner.gemm, OTHER).result()
    assert ran == []
