"""Attention without a softmax, as a recurrence over a matrix state."""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import Dim, may_equal
from ..types.dtype import DType, float32, of
from ..types.shape import Shape, TupleShape
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .concat import Concat
from .convert import Convert
from .declaration import op
from .linear import Dot
from .operation import Operation
from .pointwise import Add, Exp, Mul, Sub
from .reduce import ReduceSum
from .reshape import Reshape
from .scalar import convert, widen
from .slice import Slice

__all__ = ["LinearAttention"]

MOST_UNROLLED: Final = 4  # the most steps that are decomposed


def _packed(x: Shape, name: str, heads: int) -> tuple[Dim, Dim, Dim]:
    if x.rank != 3 or not x.dtype.is_float:
        raise ShapeError(f"{name} must be a float tensor [batch, steps, heads * size], got {x}")
    b, t, n = x.dims
    if isinstance(n, int) and n % heads:
        raise ShapeError(f"the last extent of {name} must be a multiple of {heads} heads, got {n}")
    return b, t, n // heads


def _heads(x: Array, heads: int) -> Array:
    """Returns [b, t, h d] as float32 [t, b, h, d]."""
    b, t, n = x.shape
    return np.ascontiguousarray(widen(x).reshape(b, t, heads, n // heads).transpose(1, 0, 2, 3))


@op("linear_attention")
class LinearAttention(Operation):
    """Attention as a linear recurrence on a state [b, g, k, v], read by every query.

    query [b, t, h k], key [b, t, g k], value [b, t, g v]; past_state [b, g, k, v] (zeros); decay [b, t, g k] or
    [b, t, g]; beta [b, t, g] or [b, t, 1] -> (output [b, t, h v], present_state [b, g, k, v]).
    Per step: gated rules first multiply the state by exp(decay); then key (x) value is added, delta rules add
    key (x) beta (value - state^T key); the output is scale * state^T query (scale 0: 1 / sqrt(k)).
    Errors: ShapeError for operands that do not fit the rule or each other.  Source: ONNX LinearAttention-27.
    """

    q_num_heads: int
    kv_num_heads: int
    update_rule: Literal["linear", "gated", "delta", "gated_delta"] = "gated_delta"
    scale: float = 0.0
    chunk_size: int = 64

    def check(self) -> None:
        if self.kv_num_heads < 1 or self.q_num_heads < 1 or self.q_num_heads % self.kv_num_heads:
            heads = f"{self.q_num_heads} and {self.kv_num_heads}"
            raise ParameterError(f"q_num_heads must be a positive multiple of kv_num_heads, got {heads}")

    def infer(
        self,
        query: Shape,
        key: Shape,
        value: Shape,
        past_state: Shape | None = None,
        decay: Shape | None = None,
        beta: Shape | None = None,
    ) -> TupleShape:
        g = self.kv_num_heads
        b, t, k = _packed(query, "query", self.q_num_heads)
        kb, kt, kk = _packed(key, "key", g)
        vb, vt, v = _packed(value, "value", g)
        for one, other in ((b, kb), (b, vb), (t, kt), (t, vt), (k, kk)):
            if not may_equal(one, other):
                raise ShapeError(f"query {query}, key {key} and value {value} must agree in batch, steps and key size")
        for what, shape, wanted in (("decay", decay, "gated"), ("beta", beta, "delta")):
            if (wanted in self.update_rule) != (shape is not None):
                verb = "requires" if shape is None else "forbids"
                raise ShapeError(f"update rule {self.update_rule!r} {verb} {what}")
            if shape is not None and (shape.rank != 3 or not all(map(may_equal, shape.dims[:2], (b, t)))):
                raise ShapeError(f"{what} must be [{b}, {t}, ..], got {shape}")
        if decay is not None and not (may_equal(decay.dims[2], g) or may_equal(decay.dims[2], g * k)):
            raise ShapeError(f"the last extent of decay must be {g} or {g * k}, got {decay.dims[2]}")
        if beta is not None and not (may_equal(beta.dims[2], g) or may_equal(beta.dims[2], 1)):
            raise ShapeError(f"the last extent of beta must be {g} or 1, got {beta.dims[2]}")
        state = (b, g, k, v)
        if past_state is not None and (past_state.rank != 4 or not all(map(may_equal, past_state.dims, state))):
            raise ShapeError(f"past_state must have dims {list(state)}, got {past_state}")
        kept = query.dtype if past_state is None else past_state.dtype
        return TupleShape([query.with_dims((b, t, self.q_num_heads * v)), Shape.of(kept, state)])

    def compute(
        self,
        query: Array,
        key: Array,
        value: Array,
        past_state: Array | None = None,
        decay: Array | None = None,
        beta: Array | None = None,
    ) -> tuple[Array, Array]:
        g, h = self.kv_num_heads, self.q_num_heads
        q, k, v = _heads(query, h), _heads(key, g), _heads(value, g)
        t, b, _, size = k.shape
        group = h // g
        scale = q.dtype.type(self.scale or 1 / math.sqrt(max(size, 1)))
        if past_state is None:
            state = np.zeros((b, g, size, v.shape[-1]), q.dtype)
        else:
            state = widen(past_state).astype(q.dtype)
        keep = None if decay is None else np.exp(_heads(decay, g))[..., None]
        rate = None if beta is None else _heads(beta, beta.shape[2])
        out = np.empty((t, b, g, group, v.shape[-1]), q.dtype)
        queries = q.reshape(t, b, g, group, size)
        for i in range(t):
            if keep is not None:
                state = state * keep[i]
            new = v[i]
            if rate is not None:
                new = rate[i] * (new - np.matmul(k[i][..., None, :], state)[..., 0, :])
            state = state + k[i][..., None] * new[..., None, :]
            out[i] = scale * np.matmul(queries[i], state)
        flat = out.transpose(1, 0, 2, 3, 4).reshape(b, t, h * v.shape[-1])
        kept = of(query.dtype if past_state is None else past_state.dtype)
        return convert(flat, of(query.dtype)), convert(state, kept)

    def decompose(
        self,
        b: Builder,
        query: Operand,
        key: Operand,
        value: Operand,
        past_state: Operand | None = None,
        decay: Operand | None = None,
        beta: Operand | None = None,
    ) -> tuple[Operand, Operand] | None:
        """Computes each of a few steps as one product of the state and pointwise ops, as decoders run it for a token."""
        given = [x for x in (query, key, value, past_state, decay, beta) if x is not None]
        sizes = [d for x in given for d in (x.shape.dims[1:] if x is past_state else x.shape.dims[2:])]
        if any(x.shape.dtype.bits > 32 for x in given) or not all(isinstance(d, int) for d in sizes):
            return None
        n, t, _ = query.shape.dims
        if not isinstance(t, int) or not 0 < t <= MOST_UNROLLED:
            return None
        g, group = self.kv_num_heads, self.q_num_heads // self.kv_num_heads
        size, width = (int(x.shape.dims[2]) // g for x in (key, value))

        def converted(x: Operand, to: DType) -> Operand:
            return x if x.shape.dtype is to else b.add(Convert(target_type=to), x)

        def wide(x: Operand) -> Operand:
            return converted(x, float32)

        def step(x: Operand, i: int, *dims: int) -> Operand:
            """Returns one step of [n, t, ..], with other extents."""
            return b.add(Reshape(dims=(n, *dims)), b.add(Slice(axes=(1,), starts=(i,), ends=(i + 1,)), wide(x)))

        def on(op: Operation, *xs: Operand) -> Operand:
            """Applies a pointwise op with broadcasting."""
            dims = (n, *np.broadcast_shapes(*(x.shape.dims[1:] for x in xs)))
            same = [x if x.shape.dims == dims else b.add(Multibroadcast(out_lens=dims), x) for x in xs]
            return b.add(op, *same)

        if past_state is None:
            state = b.add(Multibroadcast(out_lens=(n, g, size, width)), b.literal(np.zeros((), np.float32)))
        else:
            state = wide(past_state)
        scale = b.literal(np.float32(self.scale or 1 / math.sqrt(max(size, 1))))
        outs = []
        for i in range(t):
            k, v = step(key, i, g, 1, size), step(value, i, g, 1, width)
            q = step(query, i, g, group, size)
            rows = q if beta is None else b.add(Concat(axis=2), k, q)
            if decay is not None:  # the rows of the product are multiplied, the state only where it is written
                kept = int(decay.shape.dims[2]) // g
                keep = b.add(Exp(), step(decay, i, g, 1, kept))
                rows = on(Mul(), rows, keep)
                state_kept = on(Mul(), state, b.add(Reshape(dims=(n, g, kept, 1)), keep))
            else:
                state_kept = state
            read = b.add(Dot(), rows, state)
            if beta is not None:
                known, read = (
                    b.add(Slice(axes=(2,), starts=(a,), ends=(z,)), read) for a, z in ((0, 1), (1, group + 1))
                )
                shared = int(beta.shape.dims[2])
                v = on(Mul(), step(beta, i, shared, 1, 1), b.add(Sub(), v, known))
            match = b.add(ReduceSum(axes=(3,)), on(Mul(), q, k))
            outs.append(on(Mul(), on(Add(), read, on(Mul(), match, v)), scale))
            state = b.add(Add(), state_kept, on(Mul(), b.add(Reshape(dims=(n, g, size, 1)), k), v))
        flat = [b.add(Reshape(dims=(n, 1, self.q_num_heads * width)), o) for o in outs]
        whole = flat[0] if t == 1 else b.add(Concat(axis=1), *flat)
        kept_type = query.shape.dtype if past_state is None else past_state.shape.dtype
        return converted(whole, query.shape.dtype), converted(state, kept_type)
