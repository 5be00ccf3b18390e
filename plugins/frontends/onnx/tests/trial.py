"""Parses, compiles and runs a model, and classifies the outcome."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core import MgxError, OptionalShape, SequenceShape, Shape
from mgx_core.types.dim import Sym, bounds
from mgx_core.types.shape import AnyShape

__all__ = ["attempt", "inputs_for", "verdict"]


def verdict(action: Callable[[], Any]) -> dict[str, Any]:
    """Returns ``ran``, ``refused`` (an exception of mgx's tree) or ``escaped`` (any other)."""
    try:
        result = action()
    except MgxError as error:
        return {"outcome": "refused", "error": f"{type(error).__name__}: {_short(error)}"}
    except (Exception, RecursionError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if "mgx_" in f.filename] or frames
        at = "; ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in ours[-3:])
        return {"outcome": "escaped", "error": f"{type(error).__name__}: {_short(error)} at {at}"}
    return {"outcome": "ran", "result": result}


def _short(error: BaseException) -> str:
    text = str(error)
    return text if len(text) <= 600 else f"{text[:400]} ... {text[-150:]}"


def attempt(
    model: bytes | Path, feeds: Mapping[str, Any] | None = None, again: bool = False, **options: Any
) -> dict[str, Any]:
    """Parses a model, compiles it for ref and runs it, on given or generated inputs.

    again: the text and the file of the program must parse back to the same text.
    """

    def action() -> list[str]:
        parse = mgx.parse_onnx if isinstance(model, Path) else mgx.parse_onnx_buffer
        program = parse(model, **options)
        text = str(program)
        if again and len(text) < 1 << 20:
            full = program.text(full=True)
            assert mgx.parse_program(full).text(full=True) == full, "parsing the text does not restore it"
            assert mgx.load_buffer(mgx.save_buffer(program)).text(full=True) == full, (
                "loading the file does not restore the text"
            )
        program.compile(mgx.get_target("ref"))
        given = inputs_for(program.get_parameter_shapes()) if feeds is None else feeds
        results = program.run(given)
        promised = program.get_output_shapes()
        for n, (shape, found) in enumerate(zip(promised, results, strict=True)):
            check(n, shape, found)
        return [str(r.get_shape()) for r in results]

    return verdict(action)


def check(n: int, shape: AnyShape, found: mgx.Argument) -> None:
    """Checks that a result has its declared type.  Errors: AssertionError."""
    if not isinstance(shape, Shape) or not isinstance(found.get_shape(), Shape):
        return
    got = found.get_shape()
    assert isinstance(got, Shape)
    fits = got.dtype is shape.dtype and (
        not shape.ranked
        or (
            len(shape.dims) == len(got.dims)
            and all(isinstance(d, Sym) or d == m for d, m in zip(shape.dims, got.dims, strict=True))
        )
    )
    assert fits, f"result {n} is {got}, declared as {shape}"


def inputs_for(shapes: Mapping[str, AnyShape]) -> dict[str, Any]:
    """Generates small inputs: symbolic extents are 2, elements are ones and other digits."""
    return {name: _value(shape) for name, shape in shapes.items()}


def _value(shape: AnyShape) -> Any:
    match shape:
        case SequenceShape():
            return [_value(shape.element)]
        case OptionalShape():
            return _value(shape.element)
        case Shape():
            dims = (
                [d if isinstance(d, int) else min(max(2, bounds(d)[0]), bounds(d)[1]) for d in shape.dims]
                if shape.ranked
                else [2]
            )
            if np.prod([float(d or 1) for d in dims]) > 1 << 18:
                raise mgx.ParameterError(f"no test feeds {shape}")
            count = int(np.prod(dims))
            if shape.dtype.kind == "s":
                return np.full(dims, "a b", object)
            return (np.arange(count) % 3).astype(shape.dtype.numpy).reshape(dims)
    return {}
