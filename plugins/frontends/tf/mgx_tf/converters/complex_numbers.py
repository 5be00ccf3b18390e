"""Complex arithmetic and Fourier transforms; complex values are pairs of tensors during parsing."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import turn
from mgx_core.converting.converters import fitting

from ..converter import STANDARD, converts_values
from ..node import Node
from ..values import Complex, Value
from . import load_for
from .complex_functions import FUNCTIONS, magnitude


def _complex(n: Node, x: Value) -> Complex:
    if isinstance(x, Complex):
        return x
    if isinstance(x, Instruction):
        return Complex(x, n.full_like(x, 0))
    return n.fail(f"a number is required, got a {type(x).__name__}")


@converts_values("Complex")
def complex_(n: Node, real: Instruction, imag: Instruction) -> Value:
    return Complex(*n.broadcast(real, imag))


@converts_values("Real", "Imag", "ComplexAbs", "Angle", "Conj")
def part(n: Node, x: Value) -> Value:
    if isinstance(x, Instruction):
        return (
            x if n.op_type in ("Real", "Conj") else n.full_like(x, 0) if n.op_type == "Imag" else n.pointwise("abs", x)
        )
    z = _complex(n, x)
    match n.op_type:
        case "Real":
            return z.real
        case "Imag":
            return z.imag
        case "Conj":
            return Complex(z.real, n.pointwise("neg", z.imag))
        case "Angle":
            return turn(n, z.imag, z.real)
    return magnitude(n, z)


def convert_real(op_type: str, n: Node, *xs: Value) -> Any:
    """Applies the converter for real tensors."""
    load_for(op_type, STANDARD)
    converter = STANDARD.find("", op_type, 1)
    assert converter is not None
    given: list[Any] = list(xs)
    return converter(n, *fitting(converter, given))


def _either(op_type: str) -> Any:
    """Returns a converter for an operator on real or complex operands."""

    def convert(n: Node, *xs: Value) -> Any:
        if all(isinstance(x, Instruction) for x in xs):
            return convert_real(op_type, n, *xs)
        return FUNCTIONS[op_type](n, *(_complex(n, x) for x in xs))

    return convert


def _each(op_type: str) -> Any:
    """Returns a converter that applies the real operator to the real and imaginary parts separately."""

    def plain(n: Node, *xs: Value) -> Any:
        return convert_real(op_type, n, *xs)

    def convert(n: Node, *xs: Value) -> Any:
        if not any(isinstance(x, Complex) for x in xs):
            return plain(n, *xs)
        real, imag = (plain(n, *(getattr(x, p) if isinstance(x, Complex) else x for x in xs)) for p in ("real", "imag"))
        if isinstance(real, tuple):
            return tuple(Complex(a, b) for a, b in zip(real, imag, strict=True))
        return Complex(real, imag)

    return convert


@converts_values("Cast")
def cast(n: Node, x: Value) -> Value:
    to = n.dtype("DstT")
    if to.kind == "c":
        z = _complex(n, x)
        kind = dt.float64 if to is dt.complex128 else dt.float32
        return Complex(n.convert(z.real, kind), n.convert(z.imag, kind))
    made: Value = convert_real("Cast", n, x.real if isinstance(x, Complex) else x)
    return made


def _signal(n: Node, x: Instruction | Complex) -> Instruction:
    """Returns the operand of a Fourier transform: its parts along a new last axis, one for real tensors, two for complex ones."""
    if isinstance(x, Instruction):
        return n.unsqueeze(x, [x.shape.rank])
    rank = x.real.shape.rank
    return n.add("concat", n.unsqueeze(x.real, [rank]), n.unsqueeze(x.imag, [rank]), axis=rank)


def _joined(n: Node, x: Instruction) -> Complex:
    axis = x.shape.rank - 1
    return Complex(*(n.squeeze(n.slice(x, [axis], [k], [k + 1]), [axis]) for k in range(2)))


def _fitted(n: Node, x: Value, axis: int, length: Any) -> Value:
    """Returns a signal cropped or zero-padded to a length along an axis."""
    if isinstance(x, Complex):
        return Complex(_cut(n, x.real, axis, length), _cut(n, x.imag, axis, length))
    return _cut(n, x, axis, length) if isinstance(x, Instruction) else n.fail("numbers are required")


def _cut(n: Node, x: Instruction, axis: int, length: Any) -> Instruction:
    have = x.shape.dims[axis]
    if have == length:
        return x
    if not isinstance(have, int):
        n.unsupported("a transform along an axis of unknown extent")
    if have > length:
        return n.slice(x, [axis], [0], [length])
    return n.padded(x, [(0, length - have if a == axis else 0) for a in range(x.shape.rank)])


FOURIER = ("FFT", "IFFT", "FFT2D", "IFFT2D", "FFT3D", "IFFT3D")


@converts_values(*FOURIER, *(f"Batch{name}" for name in FOURIER))
def fft(n: Node, x: Value) -> Value:
    z, name = _complex(n, x), n.op_type.removeprefix("Batch")
    count = 1 if not name.endswith("D") else int(name[-2])
    made = _signal(n, z)
    for k in range(count):
        made = n.add("dft", made, axis=made.shape.rank - 2 - k, inverse=name.startswith("I"))
    return _joined(n, made)


@converts_values("ConjugateTranspose")
def conjugate_transpose(n: Node, x: Value, permutation: Instruction) -> Value:
    if isinstance(x, Instruction):
        return convert_real("Transpose", n, x, permutation)  # type: ignore[no-any-return]
    z = _complex(n, x)
    real, imag = (convert_real("Transpose", n, v, permutation) for v in (z.real, z.imag))
    return Complex(real, n.pointwise("neg", imag))


@converts_values("RFFT", "RFFT2D", "RFFT3D")
def rfft(n: Node, x: Instruction, length: Instruction) -> Value:
    sizes = n.whole(length, "the length of the transform")
    rank = x.shape.rank
    given: Value = x
    for k, size in enumerate(sizes):
        given = _fitted(n, given, rank - len(sizes) + k, size)
    assert isinstance(given, Instruction)
    made = n.add("dft", _signal(n, given), axis=rank - 1, onesided=True)
    for k in range(1, len(sizes)):
        made = n.add("dft", made, axis=rank - 1 - k)
    return _joined(n, made)


@converts_values("IRFFT", "IRFFT2D", "IRFFT3D")
def irfft(n: Node, x: Value, length: Instruction) -> Value:
    sizes = n.whole(length, "the length of the transform")
    given = _complex(n, x)
    z: Value = given
    rank = given.real.shape.rank
    for k, size in enumerate(sizes):
        z = _fitted(n, z, rank - len(sizes) + k, size if k < len(sizes) - 1 else size // 2 + 1)
    assert isinstance(z, Complex)
    made = _signal(n, z)
    for k in range(1, len(sizes)):
        made = n.add("dft", made, axis=rank - 1 - k, inverse=True)
    made = n.add("dft", made, axis=rank - 1, onesided=True, inverse=True, dft_length=sizes[-1])
    return n.squeeze(made, [rank])


EACH = (
    "Sum", "Mean", "Reshape", "Transpose", "StridedSlice", "Squeeze", "ExpandDims", "Slice", "Tile", "Pack", "Unpack", "ConcatV2",
    "GatherV2", "Pad", "ReverseV2", "Split", "SplitV", "SelectV2", "BroadcastTo", "Roll", "Cumsum", "ScatterNd", "GatherNd",
    "Gather", "Select", "MirrorPad", "DynamicStitch", "TensorScatterUpdate", "TensorScatterAdd", "UnsortedSegmentSum",
    "SegmentSum", "Concat", "PadV2", "AddN", "Fill", "BiasAdd", "MatrixBandPart", "MatrixDiag", "MatrixDiagV2", "MatrixDiagV3",
    "MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3", "MatrixSetDiag", "MatrixSetDiagV2",
    "MatrixSetDiagV3", "Diag", "DiagPart",
)  # fmt: skip

for _name in FUNCTIONS:
    converts_values(_name)(_either(_name))
for _name in EACH:
    converts_values(_name)(_each(_name))
