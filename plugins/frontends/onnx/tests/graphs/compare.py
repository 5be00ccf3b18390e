"""Compares a random graph on mgx's targets with onnxruntime, and reduces it to the smallest failing part."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from draw import Graph, captured, model_of, ran_alone

import mgx_core as mgx

__all__ = ["KINDS", "Case", "case_of", "opened", "smallest", "wrong"]

# how a program is processed after parsing, and the machine epsilon of the type in which it computes
KINDS: dict[str, float] = {
    "float32": 2.0**-23,
    "open": 2.0**-23,  # extents of inputs have names instead of numbers
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "open-float16": 2.0**-10,
    "open-bfloat16": 2.0**-7,
    "int8": 2.0**-23,  # compared with `ref`, because the selection of quantized tensors is ours
}


@dataclass(frozen=True)
class Case:
    """A model with its inputs and expected results.

    exact: results that do not depend on the order of sums; rounds: quantization steps may differ by one; kind: one of `KINDS`;
    names: symbols of the inputs' extents, None for a static one.
    """

    nodes: list[onnx.NodeProto]
    inputs: Mapping[str, Any]
    constants: Mapping[str, Any]
    results: Mapping[str, Any]
    opset: int
    exact: frozenset[str]
    rounds: bool
    special: bool
    kind: str = "float32"
    names: Mapping[str, list[str | None]] = field(default_factory=dict)

    def model(self, constants: Mapping[str, Any] | None = None) -> onnx.ModelProto:
        made = model_of(self.nodes, self.inputs, constants or self.constants, self.results, self.opset)
        for info in made.graph.input:
            for dim, name in zip(info.type.tensor_type.shape.dim, self.names.get(info.name, ()), strict=False):
                if name is not None:
                    dim.dim_param = name
        return made

    def pruned(self) -> Case:
        """Returns the case without nodes that no result depends on."""
        needed, nodes = set(self.results), []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(captured(node))
                nodes.insert(0, node)
        inputs = {n: v for n, v in self.inputs.items() if n in needed}
        return replace(
            self, nodes=nodes, inputs=inputs, constants={n: v for n, v in self.constants.items() if n in needed}
        )


def case_of(g: Graph, results: list[str], kind: str = "float32") -> Case:
    values = {name: g.values[name] for name in results}
    narrow = kind not in ("float32", "open")
    exact = frozenset() if narrow else frozenset(g.exact.intersection(results))
    return Case(g.nodes, g.inputs, g.constants, values, g.opset, exact, g.rounds, g.special, kind).pruned()


def opened(case: Case, seed: int) -> Case:
    """Returns the case with symbols for some extents of inputs, often shared by equal ones, and some integers as inputs."""
    rng = np.random.default_rng([seed, 2])
    by_extent: dict[int, str] = {}
    names: dict[str, list[str | None]] = {}
    fed = {n: v for n, v in case.constants.items() if v.dtype.kind in "iu" and rng.random() < 0.15}
    inputs = {**case.inputs, **fed}
    for name, value in inputs.items():
        names[name] = []
        for axis, n in enumerate(value.shape):
            own = f"{name}_{axis}"
            said = None if rng.random() < 0.4 or name in fed else by_extent.get(n, own) if rng.random() < 0.6 else own
            if said is not None:
                by_extent.setdefault(n, said)
            names[name].append(said)
    rest = {n: v for n, v in case.constants.items() if n not in fed}
    return replace(case, inputs=inputs, constants=rest, names=names)


def defined(case: Case, values: Mapping[str, Any]) -> Case:
    """Returns the case with results by the reference implementations: onnxruntime handles NaN in minima and sorting differently."""
    known = {o: values[o] for node in case.nodes for o in node.output}
    found = ours(replace(case, results=known), "ref", {"optimize": False, "fast_math": False})
    by_name = dict(zip(known, found, strict=True))
    return replace(case, results={n: by_name.get(n, v) for n, v in case.results.items()})


def ours(case: Case, target: str, options: Mapping[str, Any], way: str = "") -> list[Any]:
    """Returns a target's results, for the program as parsed, or parsed back from its text or file."""
    program = mgx.parse_onnx_buffer(case.model().SerializeToString())
    names = program.get_parameter_names()
    given = {n: v for n, v in case.inputs.items() if n in names}
    match case.kind.removeprefix("open-"):
        case "float16":
            mgx.quantize_fp16(program)
        case "bfloat16":
            mgx.quantize_bf16(program)
        case "int8":
            mgx.quantize_int8(program, mgx.get_target("ref"), [given])
    if way == "text":
        program = mgx.parse_program(program.text(full=True))
    program.compile(mgx.get_target(target), **options)
    if way == "file":
        program = mgx.load_buffer(mgx.save_buffer(program))
    return [np.array(a.to_numpy()) for a in program.run(given)]


def difference(wanted: Any, got: Any, exact: bool, rounds: bool, step: float = 2.0**-23) -> str:
    """Describes the error of a result; empty if there is none.  step: machine epsilon."""
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
        most = 2e-4 * scale + 1e-6 if step < 1e-6 else 16 * step * scale + step
        far = worst > 0 if exact or wanted.dtype.kind != "f" else worst > most
    return f"{worst:.3g} off, of {scale:.3g}" if far else ""


def sensitive(case: Case, name: str, got: Any) -> bool:
    """True if rounding the inputs alone changes a result by about as much as its error."""
    rng, wanted, moved = np.random.default_rng(0), case.results[name].astype(np.float64), 0.0
    narrow = KINDS[case.kind] > 1e-6
    share = KINDS[case.kind] / 2 if narrow else 2e-6

    def jittered(v: Any, turn: int) -> Any:
        if turn == 0 and narrow and v.dtype.kind == "f":  # which numbers become equal also matters
            mantissa, power = np.frexp(v)
            return np.ldexp(np.rint(mantissa / share) * share, power).astype(v.dtype)
        return (v * (1 + share * rng.standard_normal(v.shape))).astype(v.dtype) if v.dtype.kind == "f" else v

    for turn in range(4):
        model = replace(case, results={name: case.results[name]}).model(
            {n: jittered(v, turn) for n, v in case.constants.items()}
        )
        try:
            (found,) = ran_alone(model, {n: jittered(v, turn) for n, v in case.inputs.items()})
        except Exception:
            return True
        if found.shape != wanted.shape or not np.isfinite(found).all():
            return True
        moved = max(moved, float(np.abs(found - wanted).max(initial=0)))
    return got.shape == wanted.shape and bool(np.abs(got.astype(np.float64) - wanted).max(initial=0) <= 20 * moved)


def wrong(case: Case, target: str, options: Mapping[str, Any], way: str = "") -> str:
    """Describes the error of the first wrong result; empty if there is none.  Errors: those of the target."""
    if case.kind == "int8":
        by_ref = ours(case, "ref", {"optimize": False, "fast_math": False})
        case = replace(case, results=dict(zip(case.results, by_ref, strict=True)), rounds=True)
    step = KINDS[case.kind]
    for (name, wanted), got in zip(case.results.items(), ours(case, target, options, way), strict=True):
        said = difference(wanted, got, name in case.exact, case.rounds, step)
        # counts may depend on rounding
        alike = wanted.shape == got.shape or (step > 1e-6 and wanted.ndim == got.ndim)
        alike = alike and wanted.dtype == got.dtype
        if said and not (alike and name not in case.exact and not case.special and sensitive(case, name, got)):
            return f"{name}: {said}"
    return ""


def smallest(case: Case, values: Mapping[str, Any], fails: Callable[[Case], bool], seconds: float = 30.0) -> Case:
    """Returns the case with the fewest results and nodes that still fail; removed nodes become inputs or constants."""
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
