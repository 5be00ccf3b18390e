"""Generates cases from an op's schema: the attribute values, element types, ranks, lengths and absent operands that its infer
accepts.

One property is varied at a time, starting from the op's defaults on the first accepted extents, so that a failing case names
what a kernel gets wrong.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from mgx_core import MgxError, Operation, Shape, dtype
from mgx_core.types.dtype import DType

from .cases.case import FLOATS, INTS, LAYOUTS, Case, Operand

__all__ = ["schema_cases"]

Dims = tuple[int, ...]

# extents tried for operands, one per rank, the usual rank of matrices first
EXTENTS: Final[tuple[Dims, ...]] = ((3, 4), (2, 3, 4), (5,), (2, 1, 3, 5), (2, 3, 2, 3, 4), ())
# lengths of one axis: none, one, around the widths of vector registers, waves and blocks, and more than one block
LENGTHS: Final = (0, 1, 2, 7, 8, 9, 16, 17, 31, 33, 64, 67, 128, 257, 1025)
SOME_LAYOUTS: Final = ("contiguous", "transposed", "symbolic")
KINDS: Final = (*FLOATS, *INTS, dtype.bool_)
INTEGERS: Final = (1, 2, 0, 3, -1, -2)
SAMPLES: Final[dict[str, tuple[Any, ...]]] = {
    "int": INTEGERS, "Dim": INTEGERS, "float": (0.5, 1.0, 2.0, 0.0, 0.125, -1.5), "bool": (False, True), "str": ("",),
    "bytes": (b"",), "DType": (dtype.float32, dtype.float16, dtype.float64, dtype.int32),
    "Shape": (Shape(dtype.float32, [3, 4]),), "AnyShape": (Shape(dtype.float32, [3, 4]),),
    "tuple[tuple[int, ...], ...]": ((), ((0, 1),), ((1, 0),)),
}  # fmt: skip


def schema_cases(cls: type[Operation]) -> Iterator[Case]:
    """Yields every case that can be generated for an op; none if no accepted operands are found."""
    first = next(_taken_variants(cls), None)
    if first is None:
        return
    op, kind, dims, absent = first
    for fewest in (False, True) if any(i.optional for i in cls.inputs) else (absent,):
        label = "fewest" if fewest else ""
        for other in KINDS:
            yield from _tried(op, other, dims, fewest, label, LAYOUTS)
        for lens in EXTENTS:
            if lens != dims:
                yield from _tried(op, kind, lens, fewest, _words(label, _by(lens)), LAYOUTS)
    for axis, length in itertools.product(range(len(dims)), LENGTHS):
        lens = (*dims[:axis], length, *dims[axis + 1 :])
        if lens != dims:
            yield from _tried(op, kind, lens, absent, _by(lens), ("contiguous", "sliced"))
    for name, value, variant in _variants(op):
        ranks = [c for d in EXTENTS for c in _tried(variant, kind, d, absent, _words(_said(name, value), _by(d)))]
        for case in ranks[:1] + ranks[1:][-1:]:  # the first accepted extents, and the last
            yield Case(case.op, case.operands, case.label, SOME_LAYOUTS)


def _taken_variants(cls: type[Operation]) -> Iterator[tuple[Operation, DType, Dims, bool]]:
    """Yields the op with defaults, then with other attributes; an accepted type and extents; True if operands are absent."""
    bases = list(itertools.islice(_bases(cls), 40))
    others = (variant for base in bases[:1] for _, _, variant in _variants(base))
    for op in itertools.chain(bases, others):
        for absent in (False, True) if any(i.optional for i in cls.inputs) else (False,):
            for kind, dims in itertools.product(KINDS, EXTENTS):
                if any(_tried(op, kind, dims, absent, "")):
                    yield op, kind, dims, absent


def _bases(cls: type[Operation]) -> Iterator[Operation]:
    """Yields the op with its defaults; attributes without a default get a sample."""
    required = [f for f in cls.fields if not _has_default(f)]
    for values in itertools.islice(itertools.product(*(_samples(f) for f in required)), 200):
        try:
            yield cls(**dict(zip((f.name for f in required), values, strict=True)))
        except MgxError:
            continue


def _variants(base: Operation) -> Iterator[tuple[str, Any, Operation]]:
    """Yields the op with each attribute in turn changed to each other accepted value, with the attribute's name and the value."""
    for field in type(base).fields:
        seen = [getattr(base, field.name)]
        for value in _samples(field):
            try:
                variant = base.replace(**{field.name: value})
            except MgxError:
                continue
            if getattr(variant, field.name) not in seen:
                seen.append(getattr(variant, field.name))
                yield field.name, seen[-1], variant


def _has_default(field: Any) -> bool:
    try:
        field.check(field.default)
    except (TypeError, ValueError):
        return False
    return True


def _samples(field: Any) -> Sequence[Any]:
    word = field.annotation.removesuffix(" | None")
    if field.choices:
        return tuple(field.choices)
    if word in SAMPLES:
        return SAMPLES[word]
    one = SAMPLES.get(word.removeprefix("tuple[").removesuffix(", ...]"), ())
    return (*((value,) for value in one), *((a, b) for a, b in itertools.pairwise(one)), ())


def _tried(
    op: Operation, kind: DType, dims: Dims, absent: bool, label: str, layouts: tuple[str, ...] = ("contiguous",)
) -> Iterator[Case]:
    """Yields the case of these extents, if the op accepts it and its reference gives finite results.

    Operands after the first have the same extents; if the op rejects these, those of the last axis, or none.
    """
    least = [i for i in op.inputs if not i.variadic and not (i.optional and absent)]
    count = len(least) + (2 if any(i.variadic for i in op.inputs) else 0)
    for others, (low, high) in itertools.product(dict.fromkeys((dims, dims[-1:], ())), ((-3.0, 3.0), (0.0, 1.0))):
        lens = (dims, *(others for _ in range(count - 1)))[:count]
        case = Case(op, tuple(Operand(kind, n, low, high) for n in lens), label, layouts)
        if _computable(case, kind, lens):
            yield case
            return


def _computable(case: Case, kind: DType, lens: Sequence[Dims]) -> bool:
    rng = case.rng()
    try:
        case.op.result([Shape(kind, n) for n in lens])
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = case.op.evaluate([o.draw(rng) for o in case.operands if isinstance(o, Operand)])
            return all(_finite(value) for value in (made if isinstance(made, tuple) else (made,)))
    except (MgxError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False


def _finite(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype.kind in "bOSU" or bool(np.all(np.isfinite(array.astype(np.complex128))))


def _said(name: str, value: Any) -> str:
    words = value if isinstance(value, tuple) else (value,)
    return f"{name}={','.join(str(w).replace(' ', '') for w in words) or 'none'}"


def _by(dims: Dims) -> str:
    return "x".join(map(str, dims)) or "scalar"


def _words(*words: str) -> str:
    return "-".join(word for word in words if word)
