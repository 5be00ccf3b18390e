"""Library plans timed on the device for the problem at hand, and the winners kept on disk."""

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
from .plan_builders import PlanBuilders, Question
from .plan_timing import fastest_plan
from .runtime import Device

__all__ = ["Timed", "Tuner"]

OPEN: Final = 4  # timing one set of shapes takes as long as some thousand runs gain by it
SPARE: Final = 16  # a share of the memory that is free where a refusal has another reason than memory
KNOWN = 512  # problems whose plans are kept at hand
DRY_RUNS: Final = 3
GUESS = 2e8  # operations in a microsecond, where nothing was measured


class Timed:
    """A plan and the microseconds that a launch takes.

    choice: names the plan; make: gives it, called when it is first asked for (most remembered plans are only compared).
    """

    def __init__(self, us: float, choice: Mapping[str, Any], make: Callable[[], Any]) -> None:
        self.us = us
        self.choice = choice
        self._make = make

    @classmethod
    def of(cls, plan: Any, us: float) -> Timed:
        return cls(us, plan.choice, lambda: plan)

    @cached_property
    def plan(self) -> Any:
        return self._make()


class Tuner(TuningStore):
    """Asks libraries for several plans of a problem and keeps the fastest.

    A program whose shapes keep changing would spend its time on measuring: after `budget` sets of shapes, of which one of a
    program with open extents counts as `OPEN`, the library's own choice is taken for unknown problems.  For `exhaustive`
    questions (the compile option ``exhaustive_tune``) the number of timed problems has no limit, more plans are tried, also
    those that are compiled for the problem, and choices of other questions are ignored.

    folder: by default ``tuning`` in ``$MGX_CACHE_DIR`` or the user's cache directory; choices are kept by device.
    measures: False for one that knows choices of earlier measurements and makes none.
    """

    measures = True

    def __init__(self, device: Device, libraries: Libraries, folder: Path | None = None, budget: int = 16) -> None:
        self.device = device
        self.libraries = libraries
        super().__init__(f"{device.properties.name} {device.arch}", folder)
        self.budget = budget
        self.found: OrderedDict[tuple[Any, bool], Timed | No] = OrderedDict()
        self.builders = PlanBuilders(device, lambda: self.libraries.another())
        self._compiling = _Compiling()
        self._asked: dict[tuple[Any, bool], _Asked] | None = None

    def gemm(self, p: GemmProblem, compiled: bool = True, exhaustive: bool = False) -> Timed | No:
        """Returns the fastest plan of a product; compiled: where no ready-made kernel serves, also kernels compiled for it."""
        sizes = {
            "a": _space(p.a, p.m, p.k, p.batch),
            "b": _space(p.b, p.k, p.n, p.batch),
            "d": _space(p.d, p.m, p.n, p.batch),
        }
        if p.residual is not None:
            sizes["residual"] = _space(p.residual, p.m, p.n, p.batch)
        if "bias" in p.epilogue:
            sizes["bias"] = 8 * p.n

        def many(libraries: Libraries) -> Any:
            if exhaustive:
                return libraries.plans(p, 32, True)
            plans = libraries.plans(p, 16 if p.flops < 4e9 else 6, False)
            return libraries.plans(p, 3, True) if isinstance(plans, No) and compiled else plans

        return self._best(Question(p, many, compiled), sizes, exhaustive)

    def convolution(self, p: ConvProblem, exhaustive: bool = False) -> Timed | No:
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
        question = Question(p, lambda libraries: libraries.plans(p, *((24, True) if exhaustive else (8, False))))
        return self._best(question, sizes, exhaustive)

    def narrow(self, p: NarrowProblem, exhaustive: bool = False) -> Timed | No:
        """Returns the fastest plan of a product of bytes or 8-bit floats with its pointwise work."""
        question = Question(p, lambda libraries: libraries.plans(p, 12 if exhaustive else 4))
        return self._best(question, p.sizes, exhaustive)

    def attention(self, p: AttentionProblem, exhaustive: bool = False) -> Timed | No:
        """Returns the library's own choice, timed; refused where no more problems are timed."""
        if self._hurried(exhaustive) and repr(p) not in self.choices:
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
        question = Question(p, lambda libraries: libraries.plans(p) if exhaustive else No(""))
        return self._best(question, sizes, exhaustive)

    def untimed(self) -> Tuner:
        """Returns a tuner that knows what has been measured by now, and measures nothing."""
        made = copy.copy(self)
        made.measures = False
        made.choices, made.found, made._compiling = dict(self.choices), OrderedDict(), _Compiling()
        return made

    def guess(self, problem: Any, exhaustive: bool) -> float | None:
        """Returns microseconds that a library is taken to need for a problem; None where that was, or will be, measured."""
        if not self._hurried(exhaustive) or repr(problem) in self.choices:
            return None
        return _guessed(problem)

    def _hurried(self, exhaustive: bool) -> bool:
        return not (self.measures and (self.budget or exhaustive))

    def done(self, open_extents: bool = False) -> None:
        """Another set of shapes has its plans; open_extents: of a program that is run on others, too."""
        self.budget = max(self.budget - (OPEN if open_extents else 1), 0)
        self.save()

    def asked(self) -> dict[str, Any]:
        """Returns the choices for the problems so far, as plain data that another process can `learn`."""
        with self.lock:
            known = sorted(self.found.items(), key=lambda one: one[0][1])  # of two, the exhaustive one stays
            return {
                repr(p): {"refused": found.why, "versions": self.libraries.versions(p), "exhaustive": exhaustive}
                if isinstance(found, No)
                else {"choice": dict(found.choice), "us": found.us, "exhaustive": exhaustive}
                for (p, exhaustive), found in known
            }

    @contextmanager
    def expecting(self, dry_run: Callable[[], None]) -> Iterator[None]:
        """Context manager: at the first unknown problem, the plans of all problems are made in parallel.

        dry_run: asks for the plans that are needed next; meanwhile, unknown problems get placeholder plans of estimated time.
        """
        before, self._compiling.dry_run = self._compiling.dry_run, dry_run
        try:
            yield
        finally:
            self._compiling.dry_run = before

    def _best(self, question: Question, sizes: Mapping[str, int], exhaustive: bool) -> Timed | No:
        asked = _Asked(question, sizes)
        with self.lock:
            known = self._known(asked, exhaustive)
            if known is not None:
                return known
            if self._asked is not None:
                self._asked[question.problem, exhaustive] = asked
                return Timed(1.0 + question.problem.flops / GUESS, {}, lambda: _Guessed(str(question.problem)))
            if self._compiling.dry_run is not None and not self._hurried(exhaustive):
                self._prepare()
                known = self._known(asked, exhaustive)
            return self._measured(asked, exhaustive) if known is None else known

    def _known(self, asked: _Asked, exhaustive: bool) -> Timed | No | None:
        """Returns what was found for a problem, or a kept choice; that is measured again if its plan cannot be had any more."""
        question, problem = asked.question, asked.question.problem
        found = self.found.get((problem, True)) or self.found.get((problem, exhaustive))
        if found is not None:
            return found
        kept = self.choices.get(repr(problem))
        if kept is None or (exhaustive and not kept.get("exhaustive")):
            return None
        if "refused" in kept:
            if kept["versions"] != self.libraries.versions(problem):
                return None
            return self._found(problem, exhaustive, No(kept["refused"]))

        def make() -> Any:
            plan = self.libraries.plan(problem, kept["choice"])
            if not isinstance(plan, No) and plan.choice.get("version") == kept["choice"].get("version"):
                return plan
            with self.lock:
                again = self._timed(asked, exhaustive, question.plans(self.libraries))
            if isinstance(again, No):
                raise DeviceError(f"{problem!r}: {again.why}")
            return again.plan

        return self._found(problem, exhaustive, Timed(float(kept["us"]), kept["choice"], make))

    def _found(self, problem: Any, exhaustive: bool, answer: Timed | No) -> Timed | No:
        self.found[problem, exhaustive] = answer
        if len(self.found) > KNOWN:
            self.found.popitem(last=False)
        return answer

    def _prepare(self) -> None:
        """Makes the plans of all problems that the dry run asks for in parallel, and times them one after the other.

        Plans lead to other problems: it is repeated until nothing is unknown, at most `DRY_RUNS` times.
        """
        dry_run, self._compiling.dry_run = self._compiling.dry_run, None
        assert dry_run is not None
        failed: set[tuple[Any, bool]] = set()
        for _ in range(DRY_RUNS):
            asked: dict[tuple[Any, bool], _Asked] = {}
            self._asked = asked
            try:
                dry_run()
            except MgxError:  # raised again by the emission itself
                return
            finally:
                self._asked = None
            unknown = {key: one for key, one in asked.items() if key not in failed}
            if len(unknown) < 2:
                return
            answers = self.builders.answers([one.question for one in unknown.values()])
            for (key, one), plans in zip(unknown.items(), answers, strict=True):
                try:
                    self._found(*key, self._timed(one, key[1], plans()))
                except MgxError:  # raised again if the program itself asks for this problem
                    failed.add(key)

    def _measured(self, asked: _Asked, exhaustive: bool) -> Timed | No:
        problem = asked.question.problem
        if self._hurried(exhaustive):
            plan = self.libraries.plan(problem) if asked.question.fall_back else No("no ready-made kernel")
            made = plan if isinstance(plan, No) else Timed.of(plan, _guessed(problem))
        else:
            made = self._timed(asked, exhaustive, asked.question.plans(self.libraries))
        return self._found(problem, exhaustive, made)

    def _timed(self, asked: _Asked, exhaustive: bool, plans: Sequence[Any] | No) -> Timed | No:
        """Returns the fastest of several plans, kept."""
        problem = asked.question.problem
        if isinstance(plans, No):  # which took as long to find out as plans take to make
            free, total = self.device.memory()
            if free >= total // SPARE:  # else that may be why
                versions = self.libraries.versions(problem)
                self.keep(repr(problem), {"refused": plans.why, "versions": versions, "exhaustive": exhaustive})
            return plans
        best = fastest_plan(self.device, plans, asked.sizes, problem.dtype)
        if best is None:
            return No(f"none of {len(plans)} plans could be launched for {problem!r}")
        plan, us = best
        self.keep(repr(problem), {"choice": dict(plan.choice), "us": us, "exhaustive": exhaustive})
        return Timed.of(plan, us)


class _Asked(NamedTuple):
    """A question and the bytes of its operands, by the names that launches take."""

    question: Question
    sizes: Mapping[str, int]


class _Compiling(threading.local):
    """The dry run of this thread's compilation; other threads may compile at the same time."""

    dry_run: Callable[[], None] | None = None


class _Guessed:
    """Placeholder for a plan during a dry run."""

    workspace = 0

    def __init__(self, name: str) -> None:
        self.name = name
        self.choice: dict[str, Any] = {}


def _guessed(problem: Any) -> float:
    """Returns microseconds that a plan is taken to need before it is timed."""
    return 5.0 + float(problem.flops) / GUESS


def _space(x: Matrix, rows: int, columns: int, batch: int) -> int:
    return x.dtype.size * (x.batch_stride * (batch - 1) + x.ld * (columns if x.transposed else rows))


def _reach(dims: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
