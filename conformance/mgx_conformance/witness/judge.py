"""Compares reference results with those of the witnesses."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from mgx_core import dtype

from ..compare import differs
from ..rounding import finite_magnitude
from .engines import WITNESSES, Declined, by_definition, of_one_op, version
from .question import Question

__all__ = ["Verdict", "verdicts"]

# the tolerance of ONNX's own suite, since the witnesses promise no more; in 16 bits they round between any two steps
RTOL: Final = 1e-3
NARROW_STEPS: Final = 8


class Verdict(NamedTuple):
    """The verdict of one witness: ``agrees``, ``declines`` or ``differs``, and how."""

    witness: str
    word: str
    why: str = ""


def verdicts(question: Question) -> tuple[list[Verdict], set[str]]:
    """Returns the verdict of each installed witness on a question, and the ops in it."""
    if question.op is None:
        wanted, ops = by_definition(question.model, question.inputs)
    else:
        wanted, ops = of_one_op(question.op, question.inputs), {question.op.name}
    found = []
    for name, run in WITNESSES.items():
        if not version(name):
            continue
        try:
            results = run(question.model, question.inputs)
        except Declined as error:
            found.append(Verdict(name, "declines", str(error)))
            continue
        why = unlike(wanted.results, results, wanted.tolerances)
        found.append(Verdict(name, "differs" if why else "agrees", why))
    return found, ops


def unlike(ours: list[Any], theirs: list[Any], tolerances: list[Any]) -> str:
    """Returns a description of how two lists of results differ; empty if they do not."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results by definition, {len(theirs)} by the witness"
    for n, (a, b, t) in enumerate(zip(ours, theirs, tolerances, strict=True)):
        why = differs(like(b, a), a, widened(a, t))
        if why:
            return f"result {n}: {why}"
    return ""


def like(theirs: Any, ours: Any) -> Any:
    """Converts a witness's result to the form of ours: strings as objects, scalars as arrays, lists of arrays as lists."""
    if isinstance(ours, list) and isinstance(theirs, (list, tuple)):
        return [like(t, o) for t, o in zip(theirs, ours, strict=True)] if len(theirs) == len(ours) else theirs
    if isinstance(ours, np.ndarray) and not isinstance(theirs, (list, tuple, dict)) and theirs is not None:
        array = np.asarray(theirs)
        return array.astype(object) if array.dtype.kind in "US" and ours.dtype == object else array
    return theirs


def widened(ours: Any, tolerance: Any) -> Any:
    """Returns the larger of the reference's tolerance and that of ONNX's suite."""
    if isinstance(ours, list):
        return [widened(o, None) for o in ours]
    if not isinstance(ours, np.ndarray) or ours.dtype == object or dtype.of(ours.dtype).kind not in "fc":
        return tolerance
    size = finite_magnitude(ours)
    top = float(size.max()) if size.size else 0.0
    kind = dtype.of(ours.dtype)
    allowed = RTOL * size + 1e-5 * max(top, 1e-2)
    if kind.bits <= 16:
        allowed = allowed + NARROW_STEPS * kind.epsilon * top
    return allowed if tolerance is None else np.maximum(allowed, tolerance)
