"""ONNX's classification losses."""

from __future__ import annotations

from mgx_core import Instruction

from ..converter import converts
from ..node import Node
from .precision import widened

__all__: list[str] = []


def _likelihood(n: Node, x: Instruction, target: Instruction, weight: Instruction | None) -> Instruction:
    reduction = n.attr("reduction", "mean")
    if reduction not in ("none", "sum", "mean"):
        raise n.error(f"reduction must be none, sum or mean, got {reduction!r}")
    ignored = n.attr("ignore_index", None)
    return n.add("negative_log_likelihood_loss", x, target, weight, ignore_index=ignored, reduction=reduction)


@converts("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    n: Node, x: Instruction, target: Instruction, weight: Instruction | None = None
) -> Instruction:
    return _likelihood(n, x, target, weight)


@converts("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    n: Node, scores: Instruction, labels: Instruction, weights: Instruction | None = None
) -> tuple[Instruction, ...]:
    dtype = scores.shape.dtype
    logs = n.add("logsoftmax", widened(n, scores), axis=1)
    loss = _likelihood(n, logs, labels, None if weights is None else widened(n, weights))
    return n.convert(loss, dtype), n.convert(logs, dtype)
