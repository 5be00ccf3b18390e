"""The pass pipeline: runs the passes of each stage, checks the stage's invariants, and records how long each pass took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace

from ..errors import MgxError, PassError
from ..ir.module import Module, nested
from ..ir.verify import verify
from ..log import debugging, log, traced
from ..passes.interface import Pass
from ..records import dataclass
from ..rules.stats import RuleCount

__all__ = ["STAGES", "PassRecord", "Pipeline", "Stage"]

STAGES = ("normalize", "simplify", "legalize", "fuse", "lower", "plan")


def nothing(module: Module) -> str | None:
    """The invariant that always holds."""
    return None


@dataclass(frozen=True)
class Stage:
    """A named list of passes with its invariants, which return None or a description of the violation.

    ensures: must hold after the last pass.  Only checked under `validate`, since they are expensive: requires, before the first
    pass and after each; proves, after the last.
    """

    name: str
    passes: tuple[Pass, ...] = ()
    ensures: Callable[[Module], str | None] = nothing
    requires: Callable[[Module], str | None] = nothing
    proves: Callable[[Module], str | None] = nothing

    def with_passes(self, passes: Iterable[Pass]) -> Stage:
        """Returns the stage with more passes appended."""
        return replace(self, passes=(*self.passes, *passes))


@dataclass
class PassRecord:
    """One run of a pass: its duration, whether it changed the module, instructions before and after (with nested modules).

    rules: counts of its rules.
    """

    stage: str
    name: str
    seconds: float
    changed: bool
    before: int
    after: int
    rules: tuple[RuleCount, ...] = ()

    def __post_init__(self) -> None:
        self.rules = tuple(RuleCount(*r) for r in self.rules)


@dataclass
class Pipeline:
    """Runs stages in order and records each pass.

    validate: after every pass, verify the module and the stage's `requires`; at the end of the stage, its `proves`.
    Errors: PassError that names the stage and pass that broke an invariant, and the passes before it.
    """

    stages: Sequence[Stage]
    validate: bool = False
    disabled: frozenset[str] = frozenset()
    records: list[PassRecord] = field(default_factory=list)
    count: int = field(default=0, init=False, repr=False)  # of instructions after the last pass

    def run(self, module: Module) -> Module:
        self.count = size(module)
        held: Callable[[Module], str | None] = nothing  # the `ensures` of the previous stage
        for stage in self.stages:
            if self.validate:
                self._check(stage.requires(module), f"before stage {stage.name!r}")
            passes = [p for p in stage.passes if p.name not in self.disabled]
            changes = [self._run_pass(stage, p, module) for p in passes]
            if any(changes) or stage.ensures is not held:
                self._check(stage.ensures(module), f"after stage {stage.name!r}")
            held = stage.ensures
            if self.validate:
                self._check(stage.proves(module), f"after stage {stage.name!r}")
        return module

    def _check(self, wrong: str | None, place: str) -> None:
        if wrong is not None:
            raise PassError(f"{place}: {wrong}{self._before()}")

    def _before(self) -> str:
        ran = ", ".join(r.name for r in self.records)
        return f" (after the following passes: [{ran}])" if ran else ""

    def _run_pass(self, stage: Stage, one: Pass, module: Module) -> bool:
        before = self.count
        tally = one.tally
        if tally is not None:
            tally.clear()
        start = time.perf_counter()
        try:
            changed = one.apply(module)
        except MgxError as error:
            raise error.located(f"pass {one.name!r}") from None
        except MemoryError:
            raise
        except Exception as error:
            raise PassError(
                f"pass {one.name!r} of stage {stage.name!r} failed: {type(error).__name__}: {error} "
                f"(in {type(one).__module__}.{type(one).__qualname__}){self._before()}"
            ) from error
        if not isinstance(changed, bool):
            raise PassError(f"pass {one.name!r} of stage {stage.name!r} must return True or False, got {changed!r}")
        if changed:
            module.sweep()
        seconds = time.perf_counter() - start
        if changed:
            self.count = size(module)
        rules = () if tally is None else tally.counts()
        self.records.append(PassRecord(stage.name, one.name, seconds, changed, before, self.count, rules))
        if debugging():
            log.debug("pass %s: %d -> %d instructions, %.2f ms", one.name, before, self.count, seconds * 1e3)
            if changed and traced("compile"):
                from ..ir.text.writer import program_text  # most processes print no module

                log.debug("%s", program_text(module))
        if self.validate:
            place = f"pass {one.name!r} of stage {stage.name!r} left a bad module"
            found = verify(module)
            self._check(found[0] if found else stage.requires(module), place)
        return changed


def size(module: Module) -> int:
    """Counts the instructions of a module and its nested modules."""
    return sum(len(m) for m in nested(module))
