"""Times library plans on the device and stores the winners on disk."""

from __future__ import annotations

import copy
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from mgx_core import No
from mgx_core.errors import DeviceError, MgxError
from mgx_core.targets.tuning import TuningStore

from .library.attention import AttentionProblem
from .library.convolution import ConvProblem
from .library.cudnn_graph import packed
from .library.cudnn_narrow import NarrowProblem
from .library.gemm_problem import GemmProblem, Matrix
from .library.vendor import Libraries
from .plan_builders import PlanBuilders, PlanRequest, Shares
from .plan_timing import fastest_plan
from .runtime import Device

__all__ = ["DRY_RUNS", "TimedPlan", "Tuner"]

SYMBOLIC_COST: Final = 4  # budget taken by a set of symbolic extents: timing one pays off after thousands of runs
LOW_MEMORY: Final = 16  # if less than one in LOW_MEMORY bytes is free, a refusal may be due to lack of memory
MAX_PLANS = 512  # maximum number of problems stored in memory
DRY_RUNS: Final = 3
# plans to time where each engine compiles a kernel, which took 0.4 to 1.7 seconds on 16 cores
ATTENTION_PLANS: Final = 2
FUSED_PLANS: Final = 3
NARROW_PLANS: Final = 4
NARROW_WINDOWS: Final = 2  # of convolutions: a third or fourth engine was never the fastest (resnet50, H200)
RATE = 2e8  # operations per microsecond assumed where nothing was measured


class TimedPlan:
    """A plan and the microseconds of one launch.

    choice: identifies the plan; make: builds it on first access (most remembered plans are only compared).
    """

    def __init__(self, us: float, choice: Mapping[str, Any], make: Callable[[], Any]) -> None:
        self.us = us
        self.choice = choice
        self._make = make

    @classmethod
    def of(cls, plan: Any, us: float) -> TimedPlan:
        return cls(us, plan.choice, lambda: plan)

    @cached_property
    def plan(self) -> Any:
        return self._make()


class Tuner(TuningStore):
    """Requests several plans of a problem from the libraries and keeps the fastest.

    Timing has a budget, since a program whose shapes keep changing would otherwise spend its time on it: after `budget` sets of
    shapes (one of a program with symbolic extents counts as `SYMBOLIC_COST`), unknown problems get the library's own choice.
    `exhaustive` requests (compile option ``exhaustive_tune``) have no budget, try more plans, including those compiled for the
    problem, and ignore choices made for other requests.

    folder: by default ``tuning`` in ``$MGX_CACHE_DIR`` or the user's cache directory; choices are stored per device.
    measures: False for a tuner that uses earlier measurements and makes none.
    """

    measures = True

    def __init__(self, device: Device, libraries: Libraries, folder: Path | None = None, budget: int = 16) -> None:
        self.device = device
        self.libraries = libraries
        super().__init__(f"{device.properties.name} {device.arch}", folder)
        self.budget = budget
        self.found: OrderedDict[tuple[Any, bool], TimedPlan | No] = OrderedDict()
        self.builders = PlanBuilders(device, lambda: self.libraries.another())
        self._compiling = _Compiling()
        self._requested: dict[tuple[Any, bool], _Building] | None = None  # of a dry run
        self._failed: set[tuple[Any, bool]] = set()  # requests whose plans could not be built for the dry run

    def gemm(self, p: GemmProblem, compiled: bool = True, exhaustive: bool = False) -> TimedPlan | No:
        """Returns the fastest plan of a matrix product; compiled: without prebuilt kernels, tries those compiled for it."""
        sizes = {
            "a": _space(p.a, p.m, p.k, p.batch),
            "b": _space(p.b, p.k, p.n, p.batch),
            "d": _space(p.d, p.m, p.n, p.batch),
        }
        if p.residual is not None:
            sizes["residual"] = _space(p.residual, p.m, p.n, p.batch)
        if "bias" in p.epilogue:
            sizes["bias"] = 8 * p.n
        if p.scaled:
            sizes |= {"a_scale": 4 * p.m, "b_scale": 4 * p.n}

        def many(libraries: Libraries) -> Any:
            if exhaustive:
                return libraries.plans(p, 32, True)
            plans = libraries.plans(p, 16 if p.flops < 4e9 else 6, False)
            return _compiled(p, FUSED_PLANS) if isinstance(plans, No) and compiled else plans

        return self._best(PlanRequest(p, many, compiled), sizes, exhaustive)

    def convolution(self, p: ConvProblem, exhaustive: bool = False) -> TimedPlan | No:
        """Returns the fastest plan of a convolution."""
        size = p.dtype.size
        sizes = {
            "x": size * math.prod(p.dims),
            "w": size * p.filters * (p.dims[1] // p.groups) * math.prod(p.kernel),
            "y": size * math.prod(p.out_dims),
        }
        if "residual" in p.epilogue:
            sizes["residual"] = sizes["y"]
        if "bias" in p.epilogue:
            sizes["bias"] = 8 * p.filters
        request = PlanRequest(p, lambda libraries: libraries.plans(p, *((24, True) if exhaustive else (8, False))))
        return self._best(request, sizes, exhaustive)

    def narrow(self, p: NarrowProblem, exhaustive: bool = False) -> TimedPlan | No:
        """Returns the fastest plan of a product of bytes or 8-bit floats with its epilogue, timed with any scalars."""
        bare = p.numberless()
        few = NARROW_WINDOWS if p.is_window else NARROW_PLANS
        request = PlanRequest(bare, lambda _: _compiled(bare, 12 if exhaustive else few))
        found = self._best(request, p.sizes, exhaustive)
        if isinstance(found, No):
            return found
        return TimedPlan(found.us, found.choice, lambda: found.plan.with_numbers(p.numbers))

    def attention(self, p: AttentionProblem, exhaustive: bool = False) -> TimedPlan | No:
        """Returns the fastest of a few plans; declines if the budget is spent.

        On an H200, for 32 x 12 heads of 128 x 64, cuDNN's choices took 16.8, 10.3, 11.3 and more microseconds.
        """
        if self._over_budget(exhaustive) and repr(p) not in self.choices:
            return No("the library's attention was not timed")
        size = p.dtype.size
        sizes = {
            "q": size * _reach((p.batch, p.heads, p.queries, p.size), p.q),
            "k": size * _reach((p.batch, p.groups, p.keys, p.size), p.k),
            "v": size * _reach((p.batch, p.groups, p.keys, p.out_size), p.v),
            "o": size * _reach((p.batch, p.heads, p.queries, p.out_size), p.o),
        }
        if p.bias is not None:
            sizes["bias"] = 4 * _reach(p.bias, p.bias_strides or packed(p.bias))
        request = PlanRequest(p, lambda _: _compiled(p, 12 if exhaustive else ATTENTION_PLANS))
        return self._best(request, sizes, exhaustive)

    def untimed(self) -> Tuner:
        """Returns a tuner with the measurements made so far that makes no more."""
        made = copy.copy(self)
        made.measures = False
        made.choices, made.found, made._compiling = dict(self.choices), OrderedDict(), _Compiling()
        return made

    def estimate(self, problem: Any, exhaustive: bool) -> float | None:
        """Returns estimated microseconds of a library for a problem; None if it was, or will be, measured."""
        if not self._over_budget(exhaustive) or repr(problem) in self.choices:
            return None
        return _estimated_us(problem)

    def _over_budget(self, exhaustive: bool) -> bool:
        return not (self.measures and (self.budget or exhaustive))

    def done(self, open_extents: bool = False) -> None:
        """Charges the budget for a set of shapes; open_extents: of a program with symbolic extents."""
        self.budget = max(self.budget - (SYMBOLIC_COST if open_extents else 1), 0)
        self.save()

    def choices_made(self) -> dict[str, Any]:
        """Returns the choices for all problems so far, as plain data for another process to `learn`."""
        with self.lock:
            known = sorted(self.found.items(), key=lambda one: one[0][1])  # the exhaustive entry wins
            return {
                repr(p): {"refused": found.why, "versions": self.libraries.versions(p), "exhaustive": exhaustive}
                if isinstance(found, No)
                else {"choice": dict(found.choice), "us": found.us, "exhaustive": exhaustive}
                for (p, exhaustive), found in known
            }

    @contextmanager
    def prefetching(self, dry_run: Callable[[], None]) -> Iterator[None]:
        """Context manager: on the first unknown problem, builds the plans of all problems in parallel.

        dry_run: requests the plans needed next; meanwhile, unknown problems get placeholder plans with estimated times.
        """
        before, self._compiling.dry_run = self._compiling.dry_run, dry_run
        try:
            yield
        finally:
            self._compiling.dry_run = before

    def prepare(self) -> None:
        """Runs the dry run of this thread's compilation, if it has not run yet, and builds the plans of all its problems."""
        with self.lock:
            if self._requested is None and self._compiling.dry_run is not None:
                self._prepare()

    def _best(self, request: PlanRequest, sizes: Mapping[str, int], exhaustive: bool) -> TimedPlan | No:
        sized = _SizedRequest(request, sizes)
        with self.lock:
            known = self._known(sized, exhaustive)
            if known is not None:
                return known
            if self._requested is not None:
                key = request.problem, exhaustive
                if key not in self._requested and key not in self._failed:
                    # threads build plans while the dry run goes on
                    self._requested[key] = _Building(sized, *self.builders.submit([request]))
                return TimedPlan(1.0 + request.problem.flops / RATE, {}, lambda: _Placeholder(str(request.problem)))
            if self._compiling.dry_run is not None and not self._over_budget(exhaustive):
                self._prepare()
                known = self._known(sized, exhaustive)
            return self._measured(sized, exhaustive) if known is None else known

    def _known(self, sized: _SizedRequest, exhaustive: bool) -> TimedPlan | No | None:
        """Returns the result known for a problem, from memory or disk; measures again if its plan no longer exists."""
        request, problem = sized.request, sized.request.problem
        found = self.found.get((problem, True)) or self.found.get((problem, exhaustive))
        if found is not None:
            return found
        stored = self.choices.get(repr(problem))
        if stored is None or (exhaustive and not stored.get("exhaustive")):
            return None
        if "refused" in stored:
            if stored["versions"] != self.libraries.versions(problem):
                return None
            return self._found(problem, exhaustive, No(stored["refused"]))

        def make() -> Any:
            plan = self.libraries.plan(problem, stored["choice"])
            if not isinstance(plan, No) and plan.choice.get("version") == stored["choice"].get("version"):
                return plan
            with self.lock:
                again = self._timed(sized, exhaustive, self.builders.plans(request, self.libraries))
            if isinstance(again, No):
                raise DeviceError(f"{problem!r}: {again.why}")
            return again.plan

        return self._found(problem, exhaustive, TimedPlan(float(stored["us"]), stored["choice"], make))

    def _found(self, problem: Any, exhaustive: bool, answer: TimedPlan | No) -> TimedPlan | No:
        self.found[problem, exhaustive] = answer
        if len(self.found) > MAX_PLANS:
            self.found.popitem(last=False)
        return answer

    def _prepare(self) -> None:
        """Builds the plans of all problems that the dry run requests in parallel, then times them one after the other.

        A plan may lead to further problems: repeats until there is at most one, at most `DRY_RUNS` times.
        """
        dry_run, self._compiling.dry_run = self._compiling.dry_run, None
        assert dry_run is not None
        self._failed.clear()
        for _ in range(DRY_RUNS):
            building: dict[tuple[Any, bool], _Building] = {}
            self._requested = building
            try:
                dry_run()
            except MgxError:  # the emission itself raises it again
                return
            finally:
                self._requested = None
            for key, (sized, plans) in building.items():
                try:
                    self._found(*key, self._timed(sized, key[1], plans()))
                except MgxError:  # raised again if the emission requests this problem
                    self._failed.add(key)
            if len(building) < 2:
                return

    def _measured(self, sized: _SizedRequest, exhaustive: bool) -> TimedPlan | No:
        problem = sized.request.problem
        if self._over_budget(exhaustive):
            plan = self.libraries.plan(problem) if sized.request.fall_back else No("no prebuilt kernel")
            made = plan if isinstance(plan, No) else TimedPlan.of(plan, _estimated_us(problem))
        else:
            made = self._timed(sized, exhaustive, self.builders.plans(sized.request, self.libraries))
        return self._found(problem, exhaustive, made)

    def _timed(self, sized: _SizedRequest, exhaustive: bool, plans: Sequence[Any] | No) -> TimedPlan | No:
        """Times several plans and stores the fastest."""
        problem = sized.request.problem
        if isinstance(plans, No):  # a refusal takes as long to find as plans take to build, so it is stored too
            free, total = self.device.memory()
            if free >= total // LOW_MEMORY:  # with less, lack of memory may be the reason
                versions = self.libraries.versions(problem)
                self.keep(repr(problem), {"refused": plans.why, "versions": versions, "exhaustive": exhaustive})
            return plans
        best = fastest_plan(self.device, plans, sized.sizes, problem.dtype)
        if best is None:
            return No(f"none of {len(plans)} plans could be launched for {problem!r}")
        plan, us = best
        self.keep(repr(problem), {"choice": dict(plan.choice), "us": us, "exhaustive": exhaustive})
        return TimedPlan.of(plan, us)


def _compiled(problem: Any, count: int) -> Shares:
    """Requests plans whose engines compile kernels, one of each share."""
    return Shares(count, lambda libraries, n: libraries.plans(problem, 1, True, (n, count)))


class _SizedRequest(NamedTuple):
    """A request and the bytes of its operands by launch parameter."""

    request: PlanRequest
    sizes: Mapping[str, int]


class _Building(NamedTuple):
    """A request whose plans threads build, and a call that waits for them."""

    sized: _SizedRequest
    plans: Callable[[], Sequence[Any] | No]


class _Compiling(threading.local):
    """State of this thread's dry run; other threads may compile concurrently."""

    dry_run: Callable[[], None] | None = None


class _Placeholder:
    """Placeholder for a plan during a dry run."""

    workspace = 0

    def __init__(self, name: str) -> None:
        self.name = name
        self.choice: dict[str, Any] = {}

    def with_numbers(self, numbers: Sequence[float]) -> _Placeholder:
        return self


def _estimated_us(problem: Any) -> float:
    """Returns estimated microseconds of a plan that has not been timed."""
    return 5.0 + float(problem.flops) / RATE


def _space(x: Matrix, rows: int, columns: int, batch: int) -> int:
    return x.dtype.size * (x.batch_stride * (batch - 1) + x.ld * (columns if x.transposed else rows))


def _reach(dims: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
