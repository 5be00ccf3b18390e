"""The operation set of this package."""

from __future__ import annotations

from mgx_core.ops.opset import OpSet

from . import (
    classical,
    dropout,
    image,
    labels,
    linear_models,
    loss,
    maps,
    svm,
    text,
    tokenizer,
    training,
)

__all__ = ["OPS"]

OPS: OpSet = OpSet.in_module(
    classical, dropout, image, labels, linear_models, loss, maps, svm, text, tokenizer, training
)
