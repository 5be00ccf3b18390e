"""The part that all code of products with packed weights shares: operands, run-time numbers, and the end of the sums."""

from __future__ import annotations

from .code import Code, V, i64
from .gemm_epilogue import Epilogue
from .gemm_results import Results
from .space import Args

__all__ = ["ProductWriter"]


class ProductWriter:
    """given: addresses of the operands beside those of the pointwise part, `beside` of them; sums: the begin of scratch."""

    def __init__(self, c: Code, behind: Epilogue, args: Args, beside: int, filled: bool = False) -> None:
        self.c, self.args = c, args
        self.zero, self.one = i64(0), i64(1)
        bases = c.buffers(range(beside + behind.extra + len(behind.outs)))
        self.given = bases[:beside]
        extra, outs = bases[beside : beside + behind.extra], bases[beside + behind.extra :]
        self.sums = V("%scratch", "ptr", 0)
        self.refs = args.load(c)
        named = {name: self.refs[at] for name, at in args.places.items()}
        self.results = Results(c, behind, named, extra, outs, filled)

    def arg(self, name: str) -> V:
        return self.refs[self.args.places[name]]

    def place(self, name: str) -> V:
        """Returns the address of a number."""
        return self.c.gep(V("%args", "ptr", 0), self.args.places[name], "i64")
