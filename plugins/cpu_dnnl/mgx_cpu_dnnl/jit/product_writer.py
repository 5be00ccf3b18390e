"""Base class of the code generators for products with packed weights: operands, arguments and the epilogue."""

from __future__ import annotations

from .code import Code, V, i64
from .gemm_epilogue import Epilogue
from .gemm_results import Results
from .space import Args

__all__ = ["ProductWriter"]


class ProductWriter:
    """Base class; given: addresses of the `leading` operands that precede the epilogue's; sums: address of the scratch memory."""

    def __init__(self, c: Code, epilogue: Epilogue, args: Args, leading: int, filled: bool = False) -> None:
        self.c, self.args = c, args
        self.zero, self.one = i64(0), i64(1)
        bases = c.buffers(range(leading + epilogue.extra + len(epilogue.outs)))
        self.given = bases[:leading]
        extra, outs = bases[leading : leading + epilogue.extra], bases[leading + epilogue.extra :]
        self.sums = V("%scratch", "ptr", 0)
        self.refs = args.load(c)
        named = {name: self.refs[at] for name, at in args.places.items()}
        self.results = Results(c, epilogue, named, extra, outs, filled)

    def arg(self, name: str) -> V:
        return self.refs[self.args.places[name]]

    def place(self, name: str) -> V:
        """Returns the address of an argument."""
        return self.c.gep(V("%args", "ptr", 0), self.args.places[name], "i64")
