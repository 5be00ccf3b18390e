"""Scaled dot-product attention by cuDNN's fused engines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from mgx_core import dtype
from mgx_core.errors import No, ParameterError
from mgx_core.types.dtype import DType

from .cudnn_graph import Graph, packed

__all__ = ["AttentionProblem", "attention_graph"]

LOWEST: Final = -1e9  # value of masked scores; finite, so that a fully masked row is not NaN
Strides = tuple[int, int, int, int]


@dataclass(frozen=True)
class AttentionProblem:
    """o = softmax(scale q k^T + bias) v for `heads` heads, in groups that share one of `kv_heads` keys and values.

    q [batch, heads, queries, size], k [batch, kv_heads, keys, size], v [batch, kv_heads, keys, v_size], o [batch, heads,
    queries, v_size]; strides in elements in that order of axes, the last one 1.  bias: extents [1 or batch, 1 or heads,
    1 or queries, keys] and its strides, of dtype `bias_dtype` (the operands' if None), added to the scores.  causal: query i
    attends keys up to i.  Errors: ParameterError for inconsistent operands.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    size: int
    q: Strides
    k: Strides
    v: Strides
    o: Strides
    scale: float
    kv_heads: int = 0  # 0: as many as heads
    v_size: int = 0  # 0: size
    dtype: DType = dtype.float16
    causal: bool = False
    bias: tuple[int, int, int, int] | None = None
    bias_strides: Strides | None = None
    bias_dtype: DType | None = None
    align: int = 16

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise ParameterError(
                f"the number of heads, {self.heads}, must be a multiple of the number of key heads, {self.groups}"
            )
        for word, strides in (("q", self.q), ("k", self.k), ("v", self.v), ("o", self.o)):
            if len(strides) != 4:
                raise ParameterError(f"{word} needs 4 strides, got {strides}")
        if self.bias is not None:
            whole = (self.batch, self.heads, self.queries, self.keys)
            if any(n not in (1, m) for n, m in zip(self.bias, whole, strict=True)):
                raise ParameterError(f"a bias of {self.bias} does not broadcast to {whole}")

    @property
    def groups(self) -> int:
        return self.kv_heads or self.heads

    @property
    def out_size(self) -> int:
        return self.v_size or self.size

    @classmethod
    def packed(
        cls, batch: int, heads: int, queries: int, keys: int, size: int, *, kv_heads: int = 0, v_size: int = 0,
        scale: float | None = None, **more: Any,
    ) -> AttentionProblem:  # fmt: skip
        """Returns the problem with contiguous operands."""
        groups, wide = kv_heads or heads, v_size or size

        def strides(*dims: int) -> Strides:
            return packed(dims)  # type: ignore[return-value]

        if more.get("bias") is not None:
            more.setdefault("bias_strides", strides(*more["bias"]))
        return cls(
            batch, heads, queries, keys, size,
            q=strides(batch, heads, queries, size), k=strides(batch, groups, keys, size),
            v=strides(batch, groups, keys, wide), o=strides(batch, heads, queries, wide),
            scale=1 / math.sqrt(size) if scale is None else scale, kv_heads=kv_heads, v_size=v_size, **more,
        )  # fmt: skip

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.heads * self.queries * self.keys * (self.size + self.out_size)

    def __str__(self) -> str:
        shared = f" kv{self.kv_heads}" if self.kv_heads and self.kv_heads != self.heads else ""
        keys = "" if self.keys == self.queries else f" keys{self.keys}"
        extras = ("+bias" if self.bias else "") + ("+causal" if self.causal else "")
        return f"{self.batch}x{self.heads}x{self.queries}x{self.size}{shared}{keys} {self.dtype.name}{extras}"


def attention_graph(p: AttentionProblem) -> Graph | No:
    """Returns product, scale, bias, mask, decomposed softmax, product: the pattern that cuDNN recognizes as attention."""
    if p.dtype not in (dtype.float16, dtype.bfloat16):
        return No(f"cuDNN's attention requires float16 or bfloat16, got {p.dtype}")
    if p.size % 8 or p.out_size % 8:
        return No(f"cuDNN's attention requires head sizes that are multiples of 8, got {p.size} and {p.out_size}")
    if max(p.size, p.out_size) > 256:
        return No(f"cuDNN's attention requires head sizes up to 256, got {p.size} and {p.out_size}")
    if any(strides[3] != 1 for strides in (p.q, p.k, p.v, p.o)):
        return No("cuDNN's attention requires unit stride within a head")
    if any(s % 8 for strides in (p.q, p.k, p.v, p.o) for s in strides[:3]):
        return No("cuDNN's attention requires strides that are multiples of 16 bytes")
    if p.bias is not None and (p.bias_strides or packed(p.bias))[3] != 1 and p.bias[3] != 1:
        # cuDNN 9.19 accepts other strides, but reads in vectors: CUDA_ERROR_MISALIGNED_ADDRESS, and the context is lost
        return No("cuDNN's attention requires unit stride within a row of the bias")
    graph = Graph()
    q = graph.operand("q", (p.batch, p.heads, p.queries, p.size), p.q, p.dtype, p.align)
    transposed = (p.k[0], p.k[1], p.k[3], p.k[2])
    k = graph.operand("k", (p.batch, p.groups, p.size, p.keys), transposed, p.dtype, p.align)
    v = graph.operand("v", (p.batch, p.groups, p.keys, p.out_size), p.v, p.dtype, p.align)
    o = graph.operand("o", (p.batch, p.heads, p.queries, p.out_size), p.o, p.dtype, p.align)
    whole = (p.batch, p.heads, p.queries, p.keys)
    scores = graph.matmul(q, k, graph.tensor(whole, packed(whole), dtype.float32, virtual=True))
    scores = graph.pointwise("mul", scores, graph.number(p.scale, dtype.float32, 4))
    if p.bias is not None:
        strides = p.bias_strides or packed(p.bias)
        scores = graph.pointwise(
            "add", scores, graph.operand("bias", p.bias, strides, p.bias_dtype or p.dtype, p.align)
        )
    if p.causal:
        rows = graph.like(scores, dtype.int32)
        graph.pointwise("index", scores, y=rows, axis=2, compute=dtype.int32)
        columns = graph.like(scores, dtype.int32)
        graph.pointwise("index", scores, y=columns, axis=3, compute=dtype.int32)
        seen = graph.like(scores, dtype.bool_)
        graph.pointwise("greater_or_equal", rows, columns, y=seen, compute=dtype.bool_)
        scores = graph.pointwise("select", scores, graph.number(LOWEST, dtype.float32, 4), seen)
    top = graph.reduce("max", scores, 3)
    powers = graph.pointwise("exp", graph.pointwise("sub", scores, top))
    total = graph.reduce("add", powers, 3)
    graph.pointwise("add", top, graph.pointwise("log", total))  # unused, but part of the pattern
    weights = graph.pointwise("div", powers, total, y=graph.like(scores, p.dtype))
    graph.matmul(weights, v, o)
    return graph
