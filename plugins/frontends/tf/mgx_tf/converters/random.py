"""Random numbers: different in each run, or determined by a seed (but not TensorFlow's sequence)."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.filling import drawn, filled

from ..converter import converts, converts_values
from ..node import Node
from ..values import Value


def _seed(n: Node) -> Instruction:
    seeds = n.int("seed", 0), n.int("seed2", 0)
    if seeds == (0, 0):
        return n.add("random_seed")
    return n.literal([seeds[0] * 1_000_003 + seeds[1]], dt.int64)


def _like(n: Node, shape: Instruction, kind: Any) -> Instruction:
    return filled(n, shape, n.literal(0, kind))


@converts("RandomUniform")
def uniform(n: Node, shape: Instruction) -> Instruction:
    return n.add("random_uniform", _seed(n), _like(n, shape, n.dtype("dtype")))


@converts("RandomStandardNormal", "TruncatedNormal")
def normal(n: Node, shape: Instruction) -> Instruction:
    like = _like(n, shape, n.dtype("dtype"))
    if n.op_type == "TruncatedNormal":
        return n.add("tf_truncated_normal", _seed(n), like)
    return n.add("random_normal", _seed(n), like)


@converts("RandomUniformInt")
def uniform_int(n: Node, shape: Instruction, low: Instruction, high: Instruction) -> Instruction:
    return _between(n, _seed(n), shape, low, high)


def _between(n: Node, seed: Instruction, shape: Instruction, low: Instruction, high: Instruction) -> Instruction:
    return n.add("tf_random_between", seed, low, high, _like(n, shape, low.shape.dtype))


@converts("Multinomial")
def multinomial(n: Node, logits: Instruction, count: Instruction) -> Instruction:
    return _classes(n, _seed(n), logits, count)


def _classes(n: Node, seed: Instruction, logits: Instruction, count: Instruction) -> Instruction:
    return n.convert(drawn(n, seed, logits, count), n.dtype("output_dtype", dt.int64))


@converts("RandomShuffle")
def shuffle(n: Node, x: Instruction) -> Instruction:
    return _shuffled(n, x, _seed(n))


def _shuffled(n: Node, x: Instruction, seed: Instruction) -> Instruction:
    """Returns the rows of x in random order."""
    length = x.shape.dims[0]
    keys = n.add("random_uniform", seed, n.broadcast_to(n.literal(0.0, dt.float32), (length,)))
    order = n.get(n.add("topk", keys, k=length, axis=0), 1)
    return n.add("gather", x, order, axis=0)


# stateless operators: the seed is an operand


def _stateless_seed(n: Node, seed: Instruction) -> Instruction:
    wide = n.convert(seed, dt.int64)
    weights = n.literal([1_000_003, 1], dt.int64)
    return n.add("reduce_sum", n.pointwise("mul", wide, weights), axes=(0,))


@converts("StatelessRandomUniform", "StatelessRandomUniformV2")
def stateless_uniform(n: Node, shape: Instruction, key: Instruction, *rest: Instruction) -> Instruction:
    return n.add("random_uniform", _key(n, key), _like(n, shape, n.dtype("dtype", dt.float32)))


@converts("StatelessRandomNormal", "StatelessRandomNormalV2")
def stateless_normal(n: Node, shape: Instruction, key: Instruction, *rest: Instruction) -> Instruction:
    return n.add("random_normal", _key(n, key), _like(n, shape, n.dtype("dtype", dt.float32)))


@converts("StatelessTruncatedNormal", "StatelessTruncatedNormalV2")
def stateless_truncated(n: Node, shape: Instruction, key: Instruction, *rest: Instruction) -> Instruction:
    return n.add("tf_truncated_normal", _key(n, key), _like(n, shape, n.dtype("dtype", dt.float32)))


@converts("StatelessRandomUniformInt")
def stateless_int(n: Node, shape: Instruction, key: Instruction, low: Instruction, high: Instruction) -> Instruction:
    return _between(n, _key(n, key), shape, low, high)


@converts("StatelessRandomUniformIntV2")
def stateless_int_v2(
    n: Node,
    shape: Instruction,
    key: Instruction,
    counter: Instruction,
    algorithm: Instruction,
    low: Instruction,
    high: Instruction,
) -> Instruction:
    return _between(n, _key(n, key), shape, low, high)


@converts("StatelessMultinomial")
def stateless_multinomial(n: Node, logits: Instruction, count: Instruction, seed: Instruction) -> Instruction:
    return _classes(n, _key(n, seed), logits, count)


def _key(n: Node, key: Instruction) -> Instruction:
    if key.shape.rank == 1 and key.shape.dims[0] == 2:
        return _stateless_seed(n, key)
    return n.reshape(n.convert(key, dt.int64), (1,))


@converts("StatelessRandomGetKeyCounter")
def key_counter(n: Node, seed: Instruction) -> Any:
    return n.convert(_stateless_seed(n, seed), dt.uint64), n.literal([0, 0], dt.uint64)


@converts("StatelessRandomGetKeyCounterAlg")
def key_counter_algorithm(n: Node, seed: Instruction) -> Any:
    return (*key_counter(n, seed), algorithm(n))


@converts("StatelessRandomGetAlg")
def algorithm(n: Node) -> Instruction:
    return n.literal(1, dt.int32)


@converts_values("RngReadAndSkip")
def read_and_skip(n: Node, *xs: Value) -> Value:
    return n.concat([n.convert(n.add("random_seed"), dt.int64)] * 3, 0)


@converts_values("StatefulUniform", "StatefulStandardNormalV2", "StatefulStandardNormal", "StatefulTruncatedNormal")
def stateful(n: Node, handle: Value, *rest: Instruction) -> Value:
    op = "random_normal" if "Normal" in n.op_type else "random_uniform"
    if "Truncated" in n.op_type:
        op = "tf_truncated_normal"
    return n.add(op, n.add("random_seed"), _like(n, rest[-1], n.dtype("dtype", dt.float32)))


@converts_values("StatefulUniformInt")
def stateful_int(
    n: Node, handle: Value, algorithm: Instruction, shape: Instruction, low: Instruction, high: Instruction
) -> Value:
    return _between(n, n.add("random_seed"), shape, low, high)


@converts_values("StatefulUniformFullInt")
def stateful_full_int(n: Node, handle: Value, algorithm: Instruction, shape: Instruction) -> Value:
    return _full_range(n, n.add("random_seed"), shape)


@converts("StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2")
def stateless_full_int(n: Node, shape: Instruction, key: Instruction, *rest: Instruction) -> Instruction:
    return _full_range(n, _key(n, key), shape)


def _full_range(n: Node, seed: Instruction, shape: Instruction) -> Instruction:
    """Returns integers uniformly distributed over the full range of the result type."""
    kind = n.dtype("dtype")
    low, high = (n.literal(v, kind) for v in (kind.lowest, kind.highest))
    return n.add("tf_random_between", seed, low, high, _like(n, shape, kind), closed=True)


@converts("RandomGamma")
def gamma(n: Node, shape: Instruction, alpha: Instruction) -> Instruction:
    """Returns samples [*shape, *alpha] of gamma distributions with parameters alpha."""
    whole = n.concat([n.convert(shape, dt.int64), n.add("dimensions_of", alpha)], 0) if alpha.shape.rank else shape
    return n.add("tf_gamma", _seed(n), filled(n, whole, alpha))


@converts("StatelessRandomGammaV2")
def stateless_gamma(n: Node, shape: Instruction, seed: Instruction, alpha: Instruction) -> Instruction:
    return n.add("tf_gamma", _key(n, seed), filled(n, shape, alpha))


@converts("StatelessRandomGammaV3")
def stateless_gamma_v3(
    n: Node, shape: Instruction, key: Instruction, counter: Instruction, algorithm: Instruction, alpha: Instruction
) -> Instruction:
    return n.add("tf_gamma", _key(n, key), filled(n, shape, alpha))


@converts("StatelessShuffle")
def stateless_shuffle(n: Node, x: Instruction, key: Instruction, *rest: Instruction) -> Instruction:
    return _shuffled(n, x, _key(n, key))
