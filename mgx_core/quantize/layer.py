"""Record of one product of a quantized program."""

from __future__ import annotations

from ..records import dataclass

__all__ = ["Layer"]


@dataclass
class Layer:
    """One product: where it came from, and what became of it.

    low, high: range of its left operand; noise: ratio of signal to noise of its weights in decibel, input_noise: of its left
    operand; histogram: of its left operand, in equal bins over what was seen of it; smoothed: True if the weights took over part
    of the sizes of its channels; kept: why it stays float.
    """

    name: str
    op: str
    low: float = 0.0
    high: float = 0.0
    noise: float = 0.0
    input_noise: float = 0.0
    histogram: tuple[int, ...] = ()
    smoothed: bool = False
    kept: str = ""
