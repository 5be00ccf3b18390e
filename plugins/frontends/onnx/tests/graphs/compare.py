"""A drawn graph on our targets against onnxruntime, and the smallest part of it that still goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from draw import Graph, captured, model_of, ran_alone

import mgx_core as mgx

__all__ = ["Case", "case_of", "smallest", "wrong"]


@dataclass(frozen=True)
class Case:
    """A model with its inputs and what its results should be.

    exact: results that are the same in whatever order sums are made; rounds: steps of quantization may differ by one.
    """

    nodes: list[onnx.NodeProto]
    inputs: Mapping[str, Any]
    constants: Mapping[str, Any]
    results: Mapping[str, Any]
    opset: int
    exact: frozenset[str]
    rounds: bool
    special: bool

    def model(self, constants: Mapping[str, Any] | None = None) -> onnx.ModelProto:
        return model_of(self.nodes, self.inputs, constants or self.constants, self.results, self.opset)

    def pruned(self) -> Case:
        """The same without what no result depends on."""
        needed, nodes = set(self.results), []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(captured(node))
                nodes.insert(0, node)
        inputs = {n: v for n, v in self.inputs.items() if n in needed}
        return replace(
            self, nodes=nodes, inputs=inputs, constants={n: v for n, v in self.constants.items() if n in needed}
        )


def case_of(g: Graph, results: list[str]) -> Case:
    values = {name: g.values[name] for name in results}
    exact = frozenset(g.exact.intersection(results))
    return Case(g.nodes, g.inputs, g.constants, values, g.opset, exact, g.rounds, g.special).pruned()


def defined(case: Case, values: Mapping[str, Any]) -> Case:
    """The same with results by the definitions: what becomes of NaN in minima and sorted rows onnxruntime sees in its own way."""
    known = {o: values[o] for node in case.nodes for o in node.output}
    found = ours(replace(case, results=known), "ref", {"optimize": False, "fast_math": False})
    by_name = dict(zip(known, found, strict=True))
    return replace(case, results={n: by_name.get(n, v) for n, v in case.results.items()})


def ours(case: Case, target: str, options: Mapping[str, Any], way: str = "") -> list[Any]:
    """What a target gives, from the program as parsed or as its text or file reads back."""
    program = mgx.parse_onnx_buffer(case.model().SerializeToString())
    if way == "text":
        program = mgx.parse_program(program.text(full=True))
    program.compile(mgx.get_target(target), **options)
    if way == "file":
        program = mgx.load_buffer(mgx.save_buffer(program))
    names = program.get_parameter_names()
    return [np.array(a.to_numpy()) for a in program.run({n: v for n, v in case.inputs.items() if n in names})]


def difference(wanted: Any, got: Any, exact: bool, rounds: bool) -> str:
    """Returns what is wrong with a result; empty if nothing is."""
    if (wanted.dtype, wanted.shape) != (got.dtype, got.shape):
        return f"{got.dtype}{list(got.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if not wanted.size:
        return ""
    a, b = wanted.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "infinities or NaN elsewhere"
    apart, scale = np.abs(a - b)[finite], np.abs(a[finite]).max(initial=0)
    worst = apart.max(initial=0)
    if rounds:
        far = (apart > 1e-3 * scale + 1e-6).mean() > 0.03 and np.sqrt((apart**2).mean()) > 0.1 * np.sqrt(
            (a[finite] ** 2).mean()
        )
    else:
        far = worst > 0 if exact or wanted.dtype.kind != "f" else worst > 2e-4 * scale + 1e-6
    return f"{worst:.3g} off, of {scale:.3g}" if far else ""


def sensitive(case: Case, name: str, got: Any) -> bool:
    """True if rounding of the inputs alone moves a result about as far as it is off."""
    rng, wanted, moved = np.random.default_rng(0), case.results[name].astype(np.float64), 0.0

    def jittered(v: Any) -> Any:
        return (v * (1 + 2e-6 * rng.standard_normal(v.shape))).astype(v.dtype) if v.dtype.kind == "f" else v

    for _ in range(4):
        model = replace(case, results={name: case.results[name]}).model(
            {n: jittered(v) for n, v in case.constants.items()}
        )
        try:
            (found,) = ran_alone(model, {n: jittered(v) for n, v in case.inputs.items()})
        except Exception:
            return True
        if found.shape != wanted.shape or not np.isfinite(found).all():
            return True
        moved = max(moved, float(np.abs(found - wanted).max(initial=0)))
    return bool(np.abs(got.astype(np.float64) - wanted).max(initial=0) <= 20 * moved)


def wrong(case: Case, target: str, options: Mapping[str, Any], way: str = "") -> str:
    """Returns what is wrong with the first result that is; empty if none is.  Errors: whatever the target raises."""
    for (name, wanted), got in zip(case.results.items(), ours(case, target, options, way), strict=True):
        said = difference(wanted, got, name in case.exact, case.rounds)
        alike = wanted.shape == got.shape and wanted.dtype == got.dtype
        if said and not (alike and name not in case.exact and not case.special and sensitive(case, name, got)):
            return f"{name}: {said}"
    return ""


def smallest(case: Case, values: Mapping[str, Any], fails: Callable[[Case], bool], seconds: float = 30.0) -> Case:
    """Returns the case with as few results and nodes as still fail; what nodes gave becomes inputs or constants."""
    until = time.monotonic() + seconds
    for name in case.results:
        one = replace(case, results={name: case.results[name]}).pruned()
        if fails(one):
            case = one
            break
    shrunk = True
    while shrunk and time.monotonic() < until:
        shrunk = False
        for node in list(case.nodes):
            if node not in case.nodes or any(o in case.results for o in node.output) or len(case.nodes) == 1:
                continue
            known = {o: values[o] for o in node.output}
            rest = [n for n in case.nodes if n is not node]
            for less in (
                replace(case, nodes=rest, inputs={**case.inputs, **known}).pruned(),
                replace(case, nodes=rest, constants={**case.constants, **known}).pruned(),
            ):
                if time.monotonic() < until and fails(less):
                    case, shrunk = less, True
                    break
    return case
