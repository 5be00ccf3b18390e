"""Shared part of recurrent layers: weights by gate, directions, initial states, lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import may_equal
from ..types.dtype import int32, int64
from ..types.shape import AnyShape, Shape
from .activation_table import ACTIVATIONS, activation
from .declaration import op
from .operation import Operation

__all__ = ["Recurrent"]

Function = Callable[[Array], Array]


@op("")
class Recurrent(Operation):
    """Base of recurrent layers: weights by gate, directions, initial states, lengths.

    x [s, b, i]; w [d, gates h, i]; r [d, gates h, h]; bias [d, 2 gates h] (of w, then of r); sequence_lens int32 [b];
    initial_h [d, b, h] -> hidden states [s, d, b, h], zero after a sequence's end; d is 2 if bidirectional, else 1.
    """

    __slots__ = ()

    gates: ClassVar[int]
    functions: ClassVar[tuple[str, ...]]  # names of the activations of one direction, by default

    hidden_size: int
    actv_func: tuple[str, ...] = ()
    actv_alpha: tuple[float, ...] = ()
    actv_beta: tuple[float, ...] = ()
    direction: Literal["forward", "reverse", "bidirectional"] = "forward"
    clip: float = 0.0

    def check(self) -> None:
        if self.hidden_size < 1:
            raise ParameterError(f"hidden_size must be at least 1, got {self.hidden_size}")
        if self.clip < 0:
            raise ParameterError(f"clip must not be negative, got {self.clip}")
        need = len(self.functions) * self.directions
        if self.actv_func and len(self.actv_func) != need:
            raise ParameterError(f"actv_func needs {need} names, got {list(self.actv_func)}")
        for name in self.actv_func:
            if name not in ACTIVATIONS:
                raise ParameterError(f"no activation function is called {name!r}; known are {', '.join(ACTIVATIONS)}")
        for what, values in (("actv_alpha", self.actv_alpha), ("actv_beta", self.actv_beta)):
            if values and len(values) != need:
                raise ParameterError(f"{what} needs {need} numbers, one per function, got {list(values)}")

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def functions_of(self, direction: int) -> list[tuple[str, float, float]]:
        """Returns names and parameters (alpha, beta) of one direction's activation functions, in the cell's order."""
        count = len(self.functions)
        at = range(direction * count, (direction + 1) * count)
        names = self.actv_func or self.functions * self.directions
        known = [ACTIVATIONS[names[n]] for n in at]
        alphas = [self.actv_alpha[n] if self.actv_alpha else k.alpha or 0.0 for n, k in zip(at, known, strict=True)]
        betas = [self.actv_beta[n] if self.actv_beta else k.beta or 0.0 for n, k in zip(at, known, strict=True)]
        return list(zip([names[n] for n in at], alphas, betas, strict=True))

    def activations(self, direction: int) -> list[Function]:
        """Returns the activation functions of one direction, in the cell's order."""
        return [activation(*one) for one in self.functions_of(direction)]

    def infer(
        self,
        x: Shape,
        w: Shape,
        r: Shape,
        bias: Shape | None = None,
        sequence_lens: Shape | None = None,
        initial_h: Shape | None = None,
    ) -> AnyShape:
        return self.layer(x, w, r, bias, sequence_lens, {"initial_h": initial_h})

    def layer(
        self,
        x: Shape,
        w: Shape,
        r: Shape,
        bias: Shape | None,
        sequence_lens: Shape | None,
        states: dict[str, Shape | None],
        peephole: Shape | None = None,
    ) -> Shape:
        """Checks all operands and returns the hidden states' shape."""
        d, h, g = self.directions, self.hidden_size, self.gates
        if not x.dtype.is_float:
            raise ShapeError(f"x must be a float tensor, got {x}")
        if x.rank != 3:
            raise ShapeError(f"x must be [steps, batch, inputs], got {x}")
        steps, batch, inputs = x.dims
        wanted = {"w": (w, (d, g * h, inputs)), "r": (r, (d, g * h, h)), "bias": (bias, (d, 2 * g * h))}
        wanted.update({name: (state, (d, batch, h)) for name, state in states.items()})
        wanted["peephole"] = (peephole, (d, 3 * h))
        for name, (shape, dims) in wanted.items():
            if shape is None:
                continue
            if shape.dtype is not x.dtype:
                raise ShapeError(f"{name} must have x's dtype {x.dtype}, got {shape.dtype}")
            if shape.rank != len(dims) or not all(map(may_equal, shape.dims, dims)):
                raise ShapeError(f"{name} must have dims {list(dims)}, got {list(shape.dims)}")
        if sequence_lens is not None:
            if sequence_lens.dtype not in (int32, int64):
                raise ShapeError(f"sequence_lens must be int32 or int64, got {sequence_lens.dtype}")
            if sequence_lens.rank != 1 or not may_equal(sequence_lens.dims[0], batch):
                raise ShapeError(f"sequence_lens must have dims [{batch}], got {sequence_lens}")
        return x.with_dims((steps, d, batch, h))

    def clipped(self, x: Array) -> Array:
        return np.clip(x, -self.clip, self.clip) if self.clip else x

    def steps(self, direction: int, steps: int) -> range:
        """Returns the time steps in a direction's order."""
        backward = self.direction == "reverse" or direction == 1
        return range(steps - 1, -1, -1) if backward else range(steps)
