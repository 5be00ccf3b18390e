"""The rewrite engine: rules as Python functions over instructions, indexed by the op at their root.

A rule matches one instruction and returns a replacement, `No(why)` (the pattern matches but the rule must not fire) or None (no
match).  The engine replaces uses, checks that dtype and dims are unchanged, propagates source names, removes dead code, counts,
and revisits only instructions near a change (a worklist).
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, count
from typing import Any, Final

import numpy as np

from ..errors import MgxError, No, ParameterError, PassError
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ir.symbols import found_extents, needed_for_extents
from ..named_tuples import NamedTuple
from ..ops.operation import Operation, place_of
from ..ops.traits import TRAITS, Traits
from ..types.argument import Argument
from ..types.shape import same_type
from .outline import through_views
from .stats import Refusal, Tally

__all__ = ["EXACT", "RANGE", "ROUNDING", "Builder", "Refusal", "Rewriter", "Rule", "Rules"]

EXACT: Final = 0  # equal results (but for the sign of zero)
ROUNDING: Final = 1  # results within a few units in the last place: sums and products in another order
RANGE: Final = 2  # results may differ where a value overflows, is NaN or lies outside a function's domain

MOST_REWRITES: Final = 50  # the most rewrites per instruction of a module
MOST_TABLES: Final = 64  # the most tables whose matching rules are kept
MOST_KINDS: Final = 10_000  # the most combinations of op classes for which the rules of a table that can match are kept
LOOKED_BACK: Final = 100  # the number of last rewrites that the error message on endless rewriting summarizes


class Builder:
    """Adds instructions before the one that is being rewritten, with its source names."""

    __slots__ = ("at", "made", "module")

    def __init__(self, module: Module, at: Instruction) -> None:
        self.module = module
        self.at = at
        self.made: list[Instruction] = []

    def add(self, op: Operation, *inputs: Instruction, modules: Sequence[Module] = ()) -> Instruction:
        made = self.module.add(op, *inputs, modules=modules, before=self.at, sources=self.at.sources)
        self.made.append(made)
        return made

    def literal(self, data: Any) -> Instruction:
        """Returns a constant from an Argument, a number, or an array, which may be a view."""
        value = Argument.from_value(np.asarray(data, order="C")) if isinstance(data, np.ndarray) else data
        made = self.module.add_literal(value, before=self.at)
        made.sources = self.at.sources
        self.made.append(made)
        return made

    def absent(self) -> Instruction:
        """Returns a placeholder for an absent optional operand."""
        made = self.module.add_absent(self.at)
        self.made.append(made)
        return made


class Rule(NamedTuple):
    """A rewrite rule: the function, its name (the function's, with dashes), its docstring, and how it may change results.

    reads: op classes of which an operand must be for the rule to match, see `Rules.on` (empty: any operands).
    trait: the trait of further root ops (empty: none); places: further root ops, see `place_of`.
    """

    name: str
    roots: tuple[type[Operation], ...]
    function: Callable[[Instruction, Builder], Instruction | No | None]
    says: str
    changes: int = EXACT
    reads: tuple[type[Operation], ...] = ()
    trait: str = ""
    places: tuple[str, ...] = ()

    def rooted(self, root: type[Operation]) -> bool:
        """True if ops of this class are root ops of the rule."""
        if issubclass(root, self.roots) or (self.trait != "" and getattr(root, self.trait)):
            return True
        return bool(self.places) and any(place_of(c) in self.places for c in root.__mro__)

    def matches(self, root: type[Operation], operands: Iterable[type[Operation]]) -> bool:
        """Returns False if the rule cannot match an op of this class on operands of these."""
        return self.rooted(root) and (not self.reads or any(issubclass(c, self.reads) for c in operands))


class Rules:
    """Rules by root op; a value, joined with ``+``."""

    def __init__(self, name: str, rules: Iterable[Rule] = ()) -> None:
        self.name = name
        self.rules = list(rules)

    @property
    def roots(self) -> tuple[type[Operation], ...]:
        """The root ops that rules name by their classes, each once."""
        return tuple(dict.fromkeys(root for rule in self.rules for root in rule.roots))

    def on(
        self,
        *roots: type[Operation] | str,
        trait: str = "",
        reads: type[Operation] | Sequence[type[Operation]] = (),
        changes: int = EXACT,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: registers a rule for instructions whose op is of one of the classes `roots`, or has a trait.

        roots: a class may be given as ``module:name``, so that programs without its ops do not import it.
        trait: a trait that classes of ops declare (``replaces``): ops of any package that have it are root ops too.
        reads: the rule can match only if at least one operand has an op of these classes, itself or as the source of views that
        it is (`through_views`; ``Literal`` thus stands for constants).  The engine does not call it elsewhere, which saves time.
        Errors: ParameterError if no trait has that name, or if it depends on an op's attributes, so that its class does not tell;
        for a root in another form.
        """
        if trait and (trait not in TRAITS or not isinstance(vars(Traits)[trait], (bool, str))):
            known = sorted(word for word in TRAITS if isinstance(vars(Traits)[word], (bool, str)))
            raise ParameterError(
                f"rules {self.name}: {trait!r} is not a trait of classes of ops; known are {', '.join(known)}"
            )
        wanted = (reads,) if isinstance(reads, type) else tuple(reads)
        classes = tuple(root for root in roots if not isinstance(root, str))
        places = tuple(root for root in roots if isinstance(root, str))
        for place in places:
            if ":" not in place:
                raise ParameterError(
                    f"rules {self.name}: a root op is a class or the text module:name of one, got {place!r}"
                )

        def keep(function: Callable[..., Any]) -> Callable[..., Any]:
            says = (function.__doc__ or "").strip().split("\n")[0]
            name = function.__name__.strip("_").replace("_", "-")
            self.rules.append(Rule(name, classes, function, says, changes, wanted, trait, places))
            return function

        return keep

    def without(self, names: Iterable[str]) -> Rules:
        """Returns the rules without those named."""
        left_out = set(names)
        return Rules(self.name, (r for r in self.rules if r.name not in left_out))

    def within(self, changes: int) -> Rules:
        """Returns the rules that change results at most by `changes` (EXACT, ROUNDING or RANGE)."""
        return Rules(self.name, (r for r in self.rules if r.changes <= changes))

    def apart_from(self, taken: Collection[str]) -> Rules:
        """Returns the rules; names that are taken are prefixed with the table's (``table.rule``), and numbered if necessary."""
        names, found = set(taken), []
        for rule in self.rules:
            name = rule.name
            if name in names:
                name = f"{_word(self.name)}.{rule.name}"
                name = next(n for n in chain((name,), (f"{name}-{k}" for k in count(2))) if n not in names)
            names.add(name)
            found.append(rule if name == rule.name else rule._replace(name=name))
        return Rules(self.name, found)

    def named(self, name: str) -> Rules:
        """Returns the same rules under another name."""
        return Rules(name, self.rules)

    def __add__(self, other: Rules) -> Rules:
        return Rules(self.name, [*self.rules, *other.rules])


class _Index:
    """The rules of a table that can match, by classes of ops."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.rooted: dict[type[Operation], bool] = {}  # whether there are rules for a class of ops
        # the rules that can match, by the classes of the root and of its operands
        self.matching: dict[tuple[type[Operation], ...], tuple[Rule, ...]] = {}

    def candidates(self, ins: Instruction) -> tuple[Rule, ...]:
        """Returns the rules that can match an instruction, in the order of the table."""
        cls = type(ins.op)
        rooted = self.rooted.get(cls)
        if rooted is None:
            rooted = self.rooted[cls] = any(r.rooted(cls) for r in self.rules)
        if not rooted:
            return ()
        classes = [cls]
        for x in ins.inputs:
            classes.append(type(x.op))
            if x.op.aligns and (source := through_views(x)) is not x:
                classes.append(type(source.op))
        key = tuple(classes)
        found = self.matching.get(key)
        if found is None:
            if len(self.matching) >= MOST_KINDS:
                self.matching.clear()
            found = self.matching[key] = tuple(r for r in self.rules if r.matches(cls, key[1:]))
        return found


# by the identities of the rules, which each index keeps alive: compilations make new tables of the same rules
_indices: dict[tuple[int, ...], _Index] = {}


def _index_of(rules: Sequence[Rule]) -> _Index:
    key = tuple(map(id, rules))
    found = _indices.get(key)
    if found is None:
        if len(_indices) >= MOST_TABLES:
            _indices.clear()
        found = _indices[key] = _Index(tuple(rules))
    return found


class Rewriter:
    """Applies rules to a fixed point with a worklist.

    tally: records firings and refusals, with the last refusal of each rule for each instruction (default: a new one).
    Errors: PassError if a rule changes a result's type, or if the rewrite does not terminate.
    """

    def __init__(self, rules: Rules, tally: Tally | None = None) -> None:
        self.rules = rules.rules
        self._candidates = _index_of(rules.rules).candidates
        self.name = rules.name
        self.tally = Tally() if tally is None else tally
        self._refused: dict[Instruction, dict[str, Refusal]] = {}
        self._elsewhere: list[Instruction] = []  # whose operands lost users in another module

    def apply(self, module: Module) -> bool:
        """Rewrites a module and those nested in it; True if anything changed."""
        changed = False
        for inner in list(nested(module)):
            if len(inner):
                changed |= self._apply(inner, inner)
        while self._elsewhere:
            ins = self._elsewhere.pop()
            if ins.parent is not None:
                changed |= self._apply(ins.parent, (ins,))
        return changed

    def _apply(self, module: Module, start: Iterable[Instruction]) -> bool:
        pending = deque(start)
        queued = set(pending)
        budget = MOST_REWRITES * (len(module) + 20)
        rewrites = 0
        recent: deque[Rule] = deque(maxlen=LOOKED_BACK)
        refused: dict[Instruction, int] = {}  # with the rewrites that had been done when a rule refused there
        while True:
            if not pending:  # retry refusals, since any rewrite may have removed the reason
                pending.extend(i for i, n in refused.items() if n < rewrites and i.parent is module)
                queued.update(pending)
                refused.clear()
                if not pending:
                    break
            ins = pending.popleft()
            queued.discard(ins)
            if ins.parent is not module:
                continue
            rules = self._candidates(ins)
            if ins in self._refused:
                self._forget(ins, rules)
            if not rules:
                continue
            builder = Builder(module, ins)
            for rule in rules:
                new = self._try(rule, module, ins, builder)
                if new is None:
                    continue
                rewrites += 1
                recent.append(rule)
                if rewrites > budget:
                    raise PassError(self._endless(recent, rewrites, ins))
                left = self._sweep(ins)
                self._elsewhere += [near for near in left if near.parent is not module]
                for near in (*builder.made, new, *new.inputs, *readers(new), *ins.inputs, *left):
                    if near not in queued and near.parent is module:
                        queued.add(near)
                        pending.append(near)
                break
            else:
                if ins in self._refused:
                    refused[ins] = rewrites
        for last in self._refused.values():
            self.tally.refusals.extend(last.values())
        self._refused.clear()
        return rewrites > 0

    def _forget(self, ins: Instruction, rules: Sequence[Rule]) -> None:
        """Drops refusals of rules that cannot match an instruction any more."""
        last = self._refused[ins]
        for name in set(last).difference(r.name for r in rules):
            del last[name]

    def _try(self, rule: Rule, module: Module, ins: Instruction, builder: Builder) -> Instruction | None:
        try:
            new = rule.function(ins, builder)
        except MgxError as error:
            raise error.located(f"{_blamed(rule)} on {ins!r}") from None
        except Exception as error:
            raise PassError(
                f"{_blamed(rule)} failed on {ins!r}: {type(error).__name__}: {error}{_switch(rule)}"
            ) from error
        if ins in self._refused:
            self._refused[ins].pop(rule.name, None)
        if new is None or new is ins:
            pass
        elif isinstance(new, No):
            self._refused.setdefault(ins, {})[rule.name] = Refusal.at(rule.name, ins, new.why)
        elif isinstance(new, Instruction):
            self._replace(rule, module, ins, new, builder.made)
            return new
        else:
            raise PassError(
                f"{_blamed(rule)} must return an instruction, No(why) or None for {ins!r}, got {new!r}{_switch(rule)}"
            )
        if builder.made:
            for made in reversed(builder.made):
                if not made.users and made.parent is not None:
                    module.remove(made)
            builder.made.clear()
        return None

    def _endless(self, recent: Iterable[Rule], rewrites: int, ins: Instruction) -> str:
        """Returns the error message for rules that trigger each other endlessly."""
        firing = [f"{_blamed(rule)} ({count} times)" for rule, count in Counter(recent).most_common()]
        worst = max(Counter(recent).items(), key=lambda found: found[1])[0]
        whose = (
            f"{firing[0]} keeps firing on its own result"
            if len(firing) == 1
            else f"these undo each other: {', '.join(firing)}"
        )
        return (
            f"{self.name}: the rewrite does not terminate; in the last of {rewrites} rewrites {whose}; last on {ins!r}"
            f"{_switch(worst)}"
        )

    def _replace(
        self, rule: Rule, module: Module, ins: Instruction, new: Instruction, made: Sequence[Instruction]
    ) -> None:
        """Replaces an instruction by the result of a rule."""
        if not same_type(ins.result, new.result):
            raise PassError(
                f"{_blamed(rule)} turns {ins!r} into {new!r}: the result's type would change{_switch(rule)}"
            )
        self.tally.fired[rule.name] += 1
        if ins.sources:
            for one in {*made, new}:
                if not one.is_param and not one.is_literal:
                    one.sources = tuple(dict.fromkeys((*one.sources, *ins.sources)))
        module.replace(ins, new)
        if new.result != ins.result and ins.result.dynamic():
            module.substitute(found_extents(ins.result, new.result))

    def _sweep(self, ins: Instruction) -> list[Instruction]:
        """Removes a dead instruction and its dead inputs, captured ones too; returns the single users of the other inputs."""
        stack, read = [ins], list[Instruction]()
        while stack:
            dead = stack.pop()
            owner = dead.parent
            if owner is None or dead.users or dead.is_param or dead.op.effect or dead in owner.outputs:
                continue
            if dead.result.dynamic() and needed_for_extents(dead):
                continue
            inputs = dead.inputs
            owner.remove(dead)
            self.tally.refusals.extend(self._refused.pop(dead, {}).values())
            stack.extend(inputs)
            read.extend(inputs)
        return [user for i in read if i.parent is not None and len(i.users) == 1 for user in i.users]


def _word(name: str) -> str:
    """Returns a name usable on the command line: without spaces, and without the ``=`` of ``NAME=on``."""
    return re.sub(r"[^\w.-]+", "-", name).replace("_", "-").strip("-") or "rules"


def _blamed(rule: Rule) -> str:
    package = str(getattr(rule.function, "__module__", "?")).partition(".")[0]
    return f"rule {rule.name!r} of package {package}"


def _switch(rule: Rule) -> str:
    """Returns the end of an error message on a rule: how to disable it."""
    return f"; the option fusion_rules={{{rule.name!r}: False}} (--rule {rule.name}=off) leaves it out"


def readers(ins: Instruction) -> list[Instruction]:
    """Returns the users of a value and their users; patterns are rarely deeper."""
    near = list(ins.users)
    return near + [u for n in near[:8] for u in n.users]
