"""Translates operation graphs to backend descriptors of cuDNN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mgx_core import dtype

from .cudnn_constants import CROSS_CORRELATION, DATA_TYPES, POINTWISE, REDUCTION, Attr, Kind, Type
from .cudnn_descriptor import Backend, Descriptor
from .cudnn_graph import Convolve, Graph, MatMul, Node, Pointwise, Reduce, Tensor

__all__ = ["operation_graph"]

ALPHA: Final = {
    "elu": Attr.POINTWISE_ELU_ALPHA, "softplus": Attr.POINTWISE_SOFTPLUS_BETA, "swish": Attr.POINTWISE_SWISH_BETA
}  # fmt: skip


def operation_graph(cudnn: Backend, graph: Graph) -> Descriptor:
    """Returns the finalized descriptor of a graph.  Errors: DeviceError."""
    made: dict[int, Descriptor] = {t.id: _tensor(cudnn, t) for t in graph.tensors}
    operations = [_operation(cudnn, node, made) for node in graph.nodes]
    descriptor = Descriptor(cudnn, Kind.OPERATION_GRAPH)
    if cudnn.handle is not None:
        descriptor.set(Attr.GRAPH_HANDLE, Type.HANDLE, cudnn.handle.value)
    return descriptor.set(Attr.GRAPH_OPS, Type.DESCRIPTOR, *operations).finalize()


def _tensor(cudnn: Backend, t: Tensor) -> Descriptor:
    d = Descriptor(cudnn, Kind.TENSOR)
    d.set(Attr.TENSOR_ID, Type.INT64, t.id)
    d.set(Attr.TENSOR_DATA_TYPE, Type.DATA_TYPE, DATA_TYPES[t.dtype.name])
    d.set(Attr.TENSOR_DIMENSIONS, Type.INT64, *t.dims)
    d.set(Attr.TENSOR_STRIDES, Type.INT64, *t.strides)
    d.set(Attr.TENSOR_ALIGNMENT, Type.INT64, t.align)
    if t.virtual:
        d.set(Attr.TENSOR_IS_VIRTUAL, Type.BOOLEAN, True)
    if t.value is not None:
        d.set(Attr.TENSOR_IS_BY_VALUE, Type.BOOLEAN, True)
    return d.finalize()


def _operation(cudnn: Backend, node: Node, made: Mapping[int, Descriptor]) -> Descriptor:
    def reads(d: Descriptor, attribute: Attr, t: Tensor | None) -> None:
        if t is not None:
            d.set(attribute, Type.DESCRIPTOR, made[t.id])

    if isinstance(node, Convolve):
        d = Descriptor(cudnn, Kind.OPERATION_CONVOLUTION_FORWARD)
        d.set(Attr.CONVOLUTION_FORWARD_DESC, Type.DESCRIPTOR, _window(cudnn, node))
        reads(d, Attr.CONVOLUTION_FORWARD_X, node.x)
        reads(d, Attr.CONVOLUTION_FORWARD_W, node.w)
        reads(d, Attr.CONVOLUTION_FORWARD_Y, node.y)
        scalar = Type.DOUBLE if node.compute is dtype.float64 else Type.FLOAT
        d.set(Attr.CONVOLUTION_FORWARD_ALPHA, scalar, 1.0)
        d.set(Attr.CONVOLUTION_FORWARD_BETA, scalar, 0.0)
    elif isinstance(node, Pointwise):
        d = Descriptor(cudnn, Kind.OPERATION_POINTWISE)
        d.set(Attr.OPERATION_POINTWISE_DESC, Type.DESCRIPTOR, _function(cudnn, node))
        reads(d, Attr.OPERATION_POINTWISE_X, node.x)
        reads(d, Attr.OPERATION_POINTWISE_B, node.b)
        reads(d, Attr.OPERATION_POINTWISE_T, node.t)
        reads(d, Attr.OPERATION_POINTWISE_Y, node.y)
    elif isinstance(node, MatMul):
        d = Descriptor(cudnn, Kind.OPERATION_MATMUL)
        reads(d, Attr.OPERATION_MATMUL_A, node.a)
        reads(d, Attr.OPERATION_MATMUL_B, node.b)
        reads(d, Attr.OPERATION_MATMUL_C, node.c)
        what = Descriptor(cudnn, Kind.MATMUL)
        what.set(Attr.MATMUL_COMP_TYPE, Type.DATA_TYPE, DATA_TYPES[node.compute.name])
        d.set(Attr.OPERATION_MATMUL_DESC, Type.DESCRIPTOR, what.finalize())
    else:
        assert isinstance(node, Reduce)
        d = Descriptor(cudnn, Kind.OPERATION_REDUCTION)
        reads(d, Attr.OPERATION_REDUCTION_X, node.x)
        reads(d, Attr.OPERATION_REDUCTION_Y, node.y)
        what = Descriptor(cudnn, Kind.REDUCTION)
        what.set(Attr.REDUCTION_COMP_TYPE, Type.DATA_TYPE, DATA_TYPES[node.compute.name])
        what.set(Attr.REDUCTION_OPERATOR, Type.REDUCTION_OPERATOR, REDUCTION[node.mode])
        d.set(Attr.OPERATION_REDUCTION_DESC, Type.DESCRIPTOR, what.finalize())
    return d.finalize()


def _window(cudnn: Backend, node: Convolve) -> Descriptor:
    """Returns the descriptor of a convolution, without its tensors."""
    what = Descriptor(cudnn, Kind.CONVOLUTION)
    what.set(Attr.CONVOLUTION_SPATIAL_DIMS, Type.INT64, len(node.stride))
    what.set(Attr.CONVOLUTION_COMP_TYPE, Type.DATA_TYPE, DATA_TYPES[node.compute.name])
    what.set(Attr.CONVOLUTION_CONV_MODE, Type.CONVOLUTION_MODE, CROSS_CORRELATION)
    what.set(Attr.CONVOLUTION_PRE_PADDINGS, Type.INT64, *(before for before, _ in node.pads))
    what.set(Attr.CONVOLUTION_POST_PADDINGS, Type.INT64, *(after for _, after in node.pads))
    what.set(Attr.CONVOLUTION_DILATIONS, Type.INT64, *node.dilation)
    return what.set(Attr.CONVOLUTION_FILTER_STRIDES, Type.INT64, *node.stride).finalize()


def _function(cudnn: Backend, node: Pointwise) -> Descriptor:
    """Returns the descriptor of a pointwise operation, without its tensors."""
    what = Descriptor(cudnn, Kind.POINTWISE)
    what.set(Attr.POINTWISE_MODE, Type.POINTWISE_MODE, POINTWISE[node.mode])
    what.set(Attr.POINTWISE_MATH_PREC, Type.DATA_TYPE, DATA_TYPES[node.compute.name])
    if node.axis is not None:
        what.set(Attr.POINTWISE_AXIS, Type.INT64, node.axis)
    a = node.activation
    if a is not None and a.kind == "relu":
        what.set(Attr.POINTWISE_RELU_LOWER_CLIP, Type.DOUBLE, a.low)
        if a.high is not None:
            what.set(Attr.POINTWISE_RELU_UPPER_CLIP, Type.DOUBLE, a.high)
        if a.slope:
            what.set(Attr.POINTWISE_RELU_LOWER_CLIP_SLOPE, Type.DOUBLE, a.slope)
    elif a is not None and a.kind in ALPHA:
        what.set(ALPHA[a.kind], Type.DOUBLE, a.alpha)
    return what.finalize()
