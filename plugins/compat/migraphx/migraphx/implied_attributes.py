"""Attributes of MIGraphX's operations that inputs determine here; they are checked against the inferred shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mgx_core import DynamicDimension, Instruction, Operation, ParameterError, Shape, ShapeError, TupleShape
from mgx_core.types.shape import AnyShape

from .shapes import core_shape, shape

__all__ = ["check_implied", "core_attributes", "split"]

IMPLIED: Final = frozenset({"out_dyn_dims", "output_dyn_shapes"})  # shapes of the results
ANY: Final = (1 << 64) - 1  # "no limit"
STATES: Final = ("hidden_states", "cell_outputs")


def core_attributes(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes of the core's operation; those that only MIGraphX has are converted or rejected.

    Errors: ParameterError for an attribute that would change the result and has no equivalent.
    """
    kept = {k: v for k, v in given.items() if k not in IMPLIED}
    for refused in ("num_heads", "kv_num_heads"):
        if name == "gqa_rotary_embedding" and refused in kept:
            raise ParameterError(
                f"gqa_rotary_embedding does not support {refused}: it rotates every head of its input; slice off the heads that "
                "must not be rotated"
            )
    if name == "rnn_var_sl_shift_output" and kept.pop("output_name", STATES[0]) not in STATES:
        raise ParameterError(
            f"rnn_var_sl_shift_output: output_name must be one of {STATES}, got {given['output_name']!r}"
        )
    if name == "dynamic_range" and kept.pop("max_output", ANY) != ANY:
        raise ParameterError(
            "dynamic_range does not support max_output: its inputs determine the number of elements; leave it out"
        )
    if name == "unsqueeze" and len(kept.pop("steps", ())) > len(given.get("axes", ())):
        raise ParameterError(
            f"unsqueeze: at most one step per axis is allowed, got {given['steps']} for {given.get('axes', [])}"
        )
    if name == "im2col" and kept.pop("padding_mode", 0) not in (0, "default"):
        raise ParameterError(
            f"im2col supports padding_mode 0 (explicit padding) only, got padding_mode {given['padding_mode']!r}"
        )
    dims = [DynamicDimension.of(d) for d in given.get("out_dyn_dims") or ()]
    if dims and not kept.get("out_lens") and all(d.is_fixed() for d in dims):
        kept["out_lens"] = [d.min for d in dims]
    return kept


def split(op: Operation, steps: Sequence[int], x: Instruction) -> Operation:
    """Returns the reshape of an unsqueeze with steps: each new axis takes a factor, its step, from the axis after it.

    Errors: ShapeError unless the steps divide these axes.
    """
    from mgx_core.ops.reshape import Reshape, Unsqueeze

    assert isinstance(op, Unsqueeze)
    left, rank = x.shape.lens(), x.shape.rank + len(op.axes)
    wanted = dict(zip((a % rank for a in op.axes), (*steps, *[1] * (len(op.axes) - len(steps))), strict=True))
    dims: list[int] = []
    for axis in range(rank):
        step = wanted.get(axis)
        if step is None:
            dims.append(left.pop(0))
            continue
        if step < 1 or (left or [1])[0] % step:
            raise ShapeError(
                f"unsqueeze: step {step} of axis {axis} must divide the extent of the next axis, got {x.shape}"
            )
        dims.append(step)
        if left:
            left[0] //= step
    return Reshape(dims=tuple(dims))


def check_implied(name: str, extra: Mapping[str, Any], result: AnyShape) -> None:
    """Errors: ShapeError if the result's shape differs from what the attributes state."""
    results = result.items if isinstance(result, TupleShape) else (result,)
    if extra.get("out_dyn_dims"):
        _check(name, "out_dyn_dims", [DynamicDimension.of(d) for d in extra["out_dyn_dims"]], results[0])
    if extra.get("output_dyn_shapes"):
        shapes: Sequence[shape] = extra["output_dyn_shapes"]
        if len(shapes) != len(results):
            raise ShapeError(f"{name}: output_dyn_shapes has {len(shapes)} shapes for {len(results)} results")
        for wanted, found in zip(shapes, results, strict=True):
            _check(name, "output_dyn_shapes", core_shape(wanted).dyn_dims(), found)


def _check(name: str, attribute: str, wanted: list[DynamicDimension], result: AnyShape) -> None:
    found = result.dyn_dims() if isinstance(result, Shape) and result.ranked else None
    if found is None or [(d.min, d.max) for d in found] != [(d.min, d.max) for d in wanted]:
        raise ShapeError(
            f"{name}: {attribute} is {wanted}, but the inputs imply {result}: dynamic extents are inferred from the inputs"
        )
