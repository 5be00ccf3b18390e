"""Compares values with the reference: tolerances and error measures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..ops.scalar import widen
from ..records import dataclass

if TYPE_CHECKING:
    from ..ir.module import Module

__all__ = ["Difference", "Signal", "Tolerance", "compare", "default_tolerance", "worst"]


@dataclass(frozen=True)
class Tolerance:
    """Tolerances for floats: RMS error relative to the largest magnitude, and absolute and relative error per element."""

    rms: float
    atol: float
    rtol: float


WIDE: Final = Tolerance(0.001, 0.001, 0.001)
HALF: Final = Tolerance(0.08, 0.04, 0.04)
FOUR_BITS: Final = Tolerance(0.8, 0.4, 0.4)


@dataclass(frozen=True)
class Difference:
    """One value against its reference; `why` is empty if it is within the tolerance."""

    name: str
    why: str
    rms: float = 0.0
    largest: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.why


def default_tolerance(module: Module, quantized: bool) -> Tolerance:
    """Returns MIGraphX's default tolerances for the narrowest float type of a program."""
    from ..ir.module import nested
    from ..types.shape import Shape

    bits = 16 if quantized else 64
    for inner in nested(module):
        for ins in inner:
            if isinstance(ins.result, Shape) and ins.result.dtype.is_float:
                bits = min(bits, ins.result.dtype.bits)
    return FOUR_BITS if bits <= 4 else HALF if bits <= 16 else WIDE


def compare(name: str, got: Any, gold: Any, tolerance: Tolerance) -> Difference:
    """Compares a value with its reference: floats within the tolerance, other types exactly."""
    if isinstance(gold, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(gold):
            return Difference(
                name, f"{len(gold)} items required, got {len(got) if isinstance(got, (list, tuple)) else got!r}"
            )
        return worst(
            name, (compare(f"{name}[{n}]", a, b, tolerance) for n, (a, b) in enumerate(zip(got, gold, strict=True)))
        )
    if not isinstance(gold, np.ndarray) or not isinstance(got, np.ndarray):
        same = gold is None and got is None if not isinstance(gold, dict) else gold == got
        return Difference(name, "" if same else f"{gold!r} required, got {got!r}")
    if got.dtype != gold.dtype or got.shape != gold.shape:
        return Difference(name, f"{gold.dtype}{list(gold.shape)} required, got {got.dtype}{list(got.shape)}")
    if gold.size == 0:
        return Difference(name, "")
    wide = widen(gold)
    if wide.dtype.kind not in "fc":
        wrong = got != gold
        count = int(np.count_nonzero(wrong))
        return Difference(name, f"{count} of {gold.size} elements differ, first at {_first(wrong)}" if count else "")
    return _floats(name, widen(got), wide, tolerance)


@dataclass
class Signal:
    """Accumulates the energies of a result and of its error over batches (signal-to-noise ratio)."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, gold: Any, got: Any) -> None:
        """Adds one batch.  Nonfinite errors count as infinite."""
        if not isinstance(gold, np.ndarray) or not isinstance(got, np.ndarray) or gold.shape != got.shape:
            self.noise = np.inf
            return
        kind = np.complex128 if gold.dtype.kind == "c" else np.float64
        a, b = widen(gold).astype(kind), widen(got).astype(kind)
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, a - b)
        self.signal += float((np.abs(np.where(np.isfinite(a), a, 0)) ** 2).sum())
        self.noise += float(np.nan_to_num(np.abs(error) ** 2, nan=np.inf, posinf=np.inf).sum())

    @property
    def ratio(self) -> float:
        """The ratio in decibels; 200 without noise."""
        if not self.noise:
            return 200.0
        return 10 * float(np.log10(max(self.signal, 1e-300) / self.noise)) if np.isfinite(self.noise) else -200.0


def _floats(name: str, got: Any, gold: Any, tolerance: Tolerance) -> Difference:
    double = np.complex128 if gold.dtype.kind == "c" else np.float64
    a, b = got.astype(double), gold.astype(double)
    odd = ~(np.isfinite(a) & np.isfinite(b))
    wrong = odd & ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if wrong.any():
        at = _first(wrong)
        count = np.count_nonzero(wrong)
        why = f"{count} NaN or infinity misplaced, first at {at}: {gold[at]} required, got {got[at]}"
        return Difference(name, why)
    a, b = np.where(odd, 0, a), np.where(odd, 0, b)
    error = np.abs(a - b)
    top = max(float(np.abs(a).max()), float(np.abs(b).max()))
    rms = float(np.sqrt(np.mean(error**2))) / top if top else 0.0
    largest = float(error.max())
    outside = error > tolerance.atol + tolerance.rtol * np.abs(b)
    why = ""
    if outside.any():
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
        why = f"{np.count_nonzero(outside)} of {error.size} elements differ, worst at {at}: {gold[at]} required, got {got[at]}"
    elif rms > tolerance.rms:
        why = f"rms error {rms:.3g} above {tolerance.rms:g}"
    return Difference(name, why, rms, largest)


def _first(wrong: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def worst(name: str, parts: Iterable[Difference]) -> Difference:
    """Returns the first difference beyond the tolerance, else the largest."""
    found = list(parts)
    bad = next((p for p in found if not p.ok), None)
    return bad or Difference(
        name, "", max((p.rms for p in found), default=0.0), max((p.largest for p in found), default=0.0)
    )
