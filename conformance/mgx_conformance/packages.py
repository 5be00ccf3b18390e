"""Cases for the ops of any installed package: those that it gives, and for the rest some made from the op's schema."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, Final

import numpy as np

from mgx_core import MgxError, Operation, OpSet, PluginError, Shape, dtype, plugin_manager

from .cases.case import FLOATS, INTS, LAYOUTS, Case, Family, Operand, table

__all__ = ["GROUP", "cases_of", "ops_of"]

GROUP: Final = "mgx_conformance"  # entry points of this group name a package's `Family` of cases

# extents that operands are tried with: all equal, then what matrices and per-channel parameters need
EXTENTS: Final = ((3, 4), (2, 3, 4), (5,), (1, 2, 5, 6), (2, 2, 3, 3, 3))
SAMPLES: Final[dict[str, tuple[Any, ...]]] = {
    "int": (1, 2, 0), "Dim": (1, 2), "float": (0.5, 1.0, 2.0), "bool": (False, True), "str": ("",), "bytes": (b"",),
    "DType": (dtype.float32, dtype.float16), "Shape": (Shape(dtype.float32, [3, 4]),),
    "AnyShape": (Shape(dtype.float32, [3, 4]),), "tuple[tuple[int, ...], ...]": ((), ((0, 1),)),
}  # fmt: skip
KINDS: Final = (*FLOATS, *INTS, dtype.bool_)


def ops_of(package: str) -> list[type[Operation]]:
    """The ops that a package brings through the hook `operations`.

    package: the name of a distribution, of its entry point, or of the Python package.
    Errors: PluginError if nothing of that name brings ops, listing what does; any error that loading raises.
    """
    manager = plugin_manager()
    owners = {}
    for plugin, lazy in manager.offered("operations"):
        record = next(r for r in manager.records if r.name == plugin)
        root = lazy.path.partition(":")[0].partition(".")[0]
        owners[lazy] = {plugin, record.distribution, record.distribution.replace("-", "_"), root}
    found = [lazy for lazy, names in owners.items() if package in names]
    if not found:
        known = ", ".join(sorted({lazy.path.partition(".")[0] for lazy in owners})) or "none"
        raise PluginError(f"no installed package {package!r} brings ops; those that do: {known}")
    sets: list[OpSet] = [lazy.load() for lazy in found]
    return [cls for ops in sets for name in ops.names() if (cls := ops.get(name)) is not None]


def cases_of(package: str) -> Iterator[Case | str]:
    """Every case of a package's ops; for an op without any, the op's name.

    An op has the cases that the package gives for it (an entry point of the group `mgx_conformance` that names a `Family`), else
    those that can be made from its schema.
    """
    ops = ops_of(package)
    names = {op.name for op in ops}
    families = [e.load() for e in entry_points(group=GROUP)]
    given = Family(package)
    for family in families:
        given.makers |= {n: maker for n, maker in family.makers.items() if n in names}
        given.reasons |= {n: reason for n, reason in family.reasons.items() if n in names}
    yield from table([given])
    for op in ops:
        if op.name in given.makers or op.name in given.reasons:
            continue
        made = {case.id: case for case in made_cases(op)}
        yield from made.values() or [op.name]


def made_cases(cls: type[Operation]) -> Iterator[Case]:
    """Cases for the attribute values, element types, extents and absent operands that an op's own rule takes."""
    for n, op in enumerate(variants(cls)):
        for absent in (False, True) if any(i.optional for i in cls.inputs) else (False,):
            for kind in KINDS if n == 0 else KINDS[:1]:
                case = next((c for dims in EXTENTS for c in _tried(op, kind, dims, n, absent)), None)
                if case is not None:
                    yield case


def variants(cls: type[Operation]) -> Iterator[Operation]:
    """The op with its defaults, then with each other value of a choice; samples stand for attributes without default."""
    required = [f for f in cls.fields if not _has_default(cls, f)]
    base = None
    for values in itertools.product(*(_samples(f) for f in required)):
        try:
            base = cls(**dict(zip((f.name for f in required), values, strict=True)))
            break
        except MgxError:
            continue
    if base is None:
        return
    yield base
    for field in cls.fields:
        for value in field.choices or (SAMPLES["bool"] if field.annotation == "bool" else ()):
            if value != getattr(base, field.name):
                try:
                    yield base.replace(**{field.name: value})
                except MgxError:
                    continue


def _has_default(cls: type[Operation], field: Any) -> bool:
    try:
        field.check(field.default)
    except (TypeError, ValueError):
        return False
    return True


def _samples(field: Any) -> Iterable[Any]:
    word = field.annotation.removesuffix(" | None")
    if field.choices:
        return tuple(field.choices)
    if word in SAMPLES:
        return SAMPLES[word]
    one = SAMPLES.get(word.removeprefix("tuple[").removesuffix(", ...]"), ())
    return (*((value,) for value in one), ())


def _tried(op: Operation, kind: Any, dims: tuple[int, ...], variant: int, absent: bool) -> Iterator[Case]:
    """The case of these extents, if the op takes it and can be computed by definition."""
    least = [i for i in op.inputs if not i.variadic and not (i.optional and absent)]
    count = len(least) + (2 if any(i.variadic for i in op.inputs) else 0)
    label = "-".join(w for w in (f"variant{variant}" if variant else "", "fewest" if absent else "") if w)
    for low, high in ((-3.0, 3.0), (0.0, 1.0)):
        case = Case(op, tuple(Operand(kind, dims, low, high) for _ in range(count)), label, LAYOUTS)
        rng = case.rng()
        try:
            op.result([Shape(kind, dims)] * count)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                op.evaluate([o.draw(rng) for o in case.operands if isinstance(o, Operand)])
        except (MgxError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            continue
        yield case
        return
