"""Signal processing: DFT, STFT, windows, MelWeightMatrix, Rfft, Irfft."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core.ops.signal import BlackmanWindow, HammingWindow, HannWindow, MelWeightMatrix
from mgx_core.types.argument import Array

from ..converter import converts
from ..node import Node
from ..tensors import dtype_of

__all__: list[str] = []


def one(n: Node, x: Instruction | None) -> int | None:
    """Returns the integer in a one-element operand, if it is known at parse time."""
    value: Array | None = n.constant(x)
    return None if value is None or value.size != 1 else int(value.reshape(-1)[0])


def transform(
    n: Node, x: Instruction, length: Instruction | None, axis: int, axis_input: Instruction | None = None
) -> Instruction:
    fixed = one(n, length)
    if fixed is not None and fixed < 1:
        n.fail(f"dft_length must be at least 1, got {fixed}")
    known: dict[str, Any] = {} if fixed is None else {"dft_length": fixed}
    return n.add(
        "dft",
        x,
        None if fixed is not None else length,
        axis_input,
        axis=axis,
        inverse=bool(n.attr("inverse", 0)),
        onesided=bool(n.attr("onesided", 0)),
        **known,
    )


@converts("DFT", since=17)
def dft_17(n: Node, x: Instruction, length: Instruction | None = None) -> Instruction:
    return transform(n, x, length, n.attr("axis", 1))


@converts("DFT", since=20)
def dft_20(n: Node, x: Instruction, length: Instruction | None = None, axis: Instruction | None = None) -> Instruction:
    fixed = -2 if axis is None else one(n, axis)
    return transform(n, x, length, -2 if fixed is None else fixed, axis if fixed is None else None)


@converts("STFT")
def stft(
    n: Node,
    signal: Instruction,
    frame_step: Instruction,
    window: Instruction | None = None,
    frame_length: Instruction | None = None,
) -> Instruction:
    step, length = one(n, frame_step), one(n, frame_length)
    for name, v in (("frame_step", step), ("frame_length", length)):
        if v is not None and v < 1:
            n.fail(f"{name} must be at least 1, got {v}")
    # the standard requires [batch, length, 1], but exporters omit the last axis and onnxruntime accepts it
    if signal.shape.rank == 2:
        signal = n.unsqueeze(signal, [2])
    return n.add(
        "stft",
        signal,
        None if step is not None else frame_step,
        window,
        None if length is not None else frame_length,
        frame_step=step or 0,
        frame_length=length or 0,
        onesided=bool(n.attr("onesided", 1)),
    )


@converts("HannWindow", "HammingWindow", "BlackmanWindow")
def window(n: Node, size: Instruction) -> Instruction:
    made = {"HannWindow": HannWindow, "HammingWindow": HammingWindow, "BlackmanWindow": BlackmanWindow}[n.op_type]
    op = made(periodic=bool(n.attr("periodic", 1)), dtype=dtype_of(n.attr("output_datatype", 1)))
    known = n.constant(size)
    return n.add(op, size) if known is None else n.literal(op.evaluate([known]))


@converts("MelWeightMatrix")
def mel_weight_matrix(n: Node, *numbers: Instruction) -> Instruction:
    op = MelWeightMatrix(dtype=dtype_of(n.attr("output_datatype", 1)))
    op.check_arity(len(numbers))
    known = [n.constant(x) for x in numbers]
    return n.add(op, *numbers) if any(k is None for k in known) else n.literal(op.evaluate(known))


@converts("Rfft", "Irfft", domain="com.microsoft")
def real_transform(n: Node, x: Instruction) -> Instruction:
    if n.attr("signal_ndim", 1) != 1 or n.attr("normalized", 0) or not n.attr("onesided", 1):
        n.unsupported("only one-sided transforms of one axis without normalization")
    if n.op_type == "Rfft":
        return n.add("dft", n.unsqueeze(x, [x.shape.rank]), axis=-2, onesided=True)
    y = n.add("dft", x, axis=-2, onesided=True, inverse=True)
    return n.squeeze(y, [y.shape.rank - 1])
