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
        self.given = c.buffers(range(leading))
        self.sums = V("%scratch", "ptr", 0)
        self.refs = args.load(c)
        extra, outs = self._operands(epilogue, leading)
        named = {name: self.refs[at] for name, at in args.places.items()}
        self.results = Results(c, epilogue, named, extra, outs, filled)

    def _operands(self, epilogue: Epilogue, leading: int) -> tuple[list[V], list[V]]:
        """Returns the addresses of the epilogue's other operands, and of the results."""
        c = self.c
        if epilogue.graph is None:  # one code for any place of the result
            at = c.op("add", self.arg("extra"), i64(leading))
            return [], [c.load(c.gep(V("%buffers", "ptr", 0), at, "ptr"), "ptr", 0)]
        extra = c.buffers(range(leading, leading + epilogue.extra))
        return extra, c.buffers(range(leading + epilogue.extra, leading + epilogue.extra + len(epilogue.outs)))

    def arg(self, name: str) -> V:
        return self.refs[self.args.places[name]]

    def place(self, name: str) -> V:
        """Returns the address of an argument."""
        return self.c.gep(V("%args", "ptr", 0), self.args.places[name], "i64")
