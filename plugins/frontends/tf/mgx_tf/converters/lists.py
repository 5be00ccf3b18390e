"""TensorList, and TensorFlow 1's TensorArray."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.ops.fill import DynamicRange
from mgx_core.types.dim import Dim

from ..converter import converts_values
from ..lists import allocated, record_extents
from ..node import Node
from ..values import Handle, TensorList, Value


def _extents(n: Node, shape: Value | None) -> tuple[Dim, ...] | None:
    """Returns the extents of a list's elements if all are static."""
    if not isinstance(shape, Instruction):
        return None
    found = n.dims(shape)
    if found is None or shape.shape.rank != 1 or any(isinstance(d, int) and d < 0 for d in found):
        return None
    return found


def _list(n: Node, value: Value) -> TensorList:
    if not isinstance(value, TensorList):
        n.fail(f"a list of tensors is required, got a {type(value).__name__}")
    return value


def _stacked(n: Node, value: Value, shape: Value | None = None) -> Instruction:
    listed = _list(n, value)
    if listed.stacked is not None:
        return listed.stacked
    dims = _extents(n, shape) or listed.dims or (listed.seen[0] if listed.seen else None)
    if dims is None:
        n.unsupported("a list is read before its elements' extents are known")
    made = allocated(n, listed, dims).stacked
    assert made is not None
    return made


def _at(n: Node, index: Value) -> Instruction:
    if not isinstance(index, Instruction):
        n.fail("an index must be a tensor")
    return n.reshape(n.convert(index, dt.int64), (1,))


@converts_values("TensorListReserve", "EmptyTensorList")
def reserve(n: Node, shape: Value, count: Value) -> Value:
    dims = _extents(n, shape)
    if not n.has_elements("element_dtype"):
        n.unsupported(
            "a list of ragged tensors or of lists (tf.map_fn with a ragged result); rows of equal length can be stacked"
        )
    kind = n.dtype("element_dtype")
    if n.op_type == "EmptyTensorList":
        count = n.literal(0, dt.int32)
    if not isinstance(count, Instruction):
        n.fail("the number of elements must be a tensor")
    made = TensorList(kind, None, count, dims)
    return allocated(n, made, dims) if dims is not None else made


@converts_values("TensorListFromTensor")
def from_tensor(n: Node, x: Instruction, shape: Value) -> Value:
    return TensorList(x.shape.dtype, x)


@converts_values("TensorListStack")
def stack(n: Node, listed: Value, shape: Value) -> Value:
    made = _stacked(n, listed, shape)
    count = n.int("num_elements", -1)
    if count >= 0 and not isinstance(made.shape.dims[0], int):
        return n.reshape(made, (count, *made.shape.dims[1:]))
    return made


@converts_values("TensorListGetItem")
def get_item(n: Node, listed: Value, index: Value, shape: Value) -> Value:
    made = n.add("gather", _stacked(n, listed, shape), _at(n, index), axis=0)
    return n.squeeze(made, [0])


@converts_values("TensorListSetItem")
def set_item(n: Node, listed: Value, index: Value, item: Instruction) -> Value:
    return _set(n, _list(n, listed), _at(n, index), item, n.flag("resize_if_index_out_of_bounds"))


def _set(n: Node, listed: TensorList, at: Instruction, item: Instruction, grows: bool) -> TensorList:
    if listed.stacked is None:
        record_extents(listed, item)
        listed = allocated(n, listed, item.shape.dims)
    whole = listed.stacked
    assert whole is not None
    if grows:
        whole = _grown(n, whole, at)
    made = n.add("scatternd_none", whole, n.reshape(at, (1, 1)), n.unsqueeze(item, [0]))
    return replace(listed, stacked=made)


def _grown(n: Node, whole: Instruction, at: Instruction) -> Instruction:
    """Returns the list extended so that it has an element at an index."""
    length = n.slice(n.add("dimensions_of", whole), [0], [0], [1])
    missing = n.pointwise("sub", n.pointwise("add", at, n.literal([1], dt.int64)), n.convert(length, dt.int64))
    missing = n.pointwise("max", missing, n.literal([0], dt.int64))
    none = n.literal([0] * (2 * whole.shape.rank - 1), dt.int64)
    rank = whole.shape.rank
    before, after = n.slice(none, [0], [0], [rank]), n.slice(none, [0], [rank], [2 * rank - 1])
    pads = n.add("concat", before, missing, after, axis=0)
    made = n.add("pad", whole, pads)
    return n.reshape(made, (made.shape.dims[0], *whole.shape.dims[1:]))


@converts_values("TensorListPushBack")
def push_back(n: Node, listed: Value, item: Instruction) -> Value:
    given = _list(n, listed)
    if given.stacked is None:
        record_extents(given, item)
        given = allocated(n, given, item.shape.dims)
    assert given.stacked is not None
    return replace(given, stacked=n.add("concat", given.stacked, n.unsqueeze(item, [0]), axis=0))


@converts_values("TensorListPopBack")
def pop_back(n: Node, listed: Value, shape: Value) -> Any:
    given = _list(n, listed)
    whole = _stacked(n, given, shape)
    length = whole.shape.dims[0]
    rest = n.slice(whole, [0], [0], [length - 1])
    return replace(given, stacked=rest), n.squeeze(n.slice(whole, [0], [length - 1], [length]), [0])


@converts_values("TensorListLength")
def length_of(n: Node, listed: Value) -> Value:
    given = _list(n, listed)
    if given.stacked is None:
        assert given.count is not None
        return n.reshape(n.convert(given.count, dt.int32), ())
    count = given.stacked.shape.dims[0]
    if isinstance(count, int):
        return n.literal(count, dt.int32)
    return n.squeeze(n.convert(n.slice(n.add("dimensions_of", given.stacked), [0], [0], [1]), dt.int32), [0])


@converts_values("TensorListElementShape")
def element_shape(n: Node, listed: Value) -> Value:
    whole = _stacked(n, listed)
    return n.convert(
        n.slice(n.add("dimensions_of", whole), [0], [1], [whole.shape.rank]), n.dtype("shape_type", dt.int32)
    )


@converts_values("TensorListResize")
def resize(n: Node, listed: Value, size: Instruction) -> Value:
    given = _list(n, listed)
    if given.stacked is None:
        return replace(given, count=size)
    wanted = n.dims(size)
    whole = given.stacked
    have = whole.shape.dims[0]
    if wanted is None or not isinstance(wanted[0], int) or not isinstance(have, int):
        n.unsupported("a list resized to a length that is known only at run time")
    if wanted[0] <= have:
        return replace(given, stacked=n.slice(whole, [0], [0], [wanted[0]]))
    more: list[tuple[Dim, Dim]] = [(0, wanted[0] - have), *((0, 0),) * (whole.shape.rank - 1)]
    return replace(given, stacked=n.padded(whole, more))


@converts_values("TensorListGather")
def gather(n: Node, listed: Value, indices: Instruction, shape: Value) -> Value:
    return n.add("gather", _stacked(n, listed, shape), n.convert(indices, dt.int64), axis=0)


@converts_values("TensorListScatter", "TensorListScatterV2")
def scatter(n: Node, x: Instruction, indices: Instruction, shape: Value, count: Value | None = None) -> Value:
    known = n.constant(indices)
    if known is None:
        n.unsupported("a list filled at positions that are known only at run time")
    total = int(known.max(initial=-1)) + 1
    if isinstance(count, Instruction):
        total = max(total, n.whole(count, "the number of elements")[0])
    base = n.broadcast_to(n.literal(0, x.shape.dtype), (total, *x.shape.dims[1:]))
    return TensorList(x.shape.dtype, n.add("scatternd_none", base, n.unsqueeze(n.convert(indices, dt.int64), [1]), x))


@converts_values("TensorListScatterIntoExistingList")
def scatter_into(n: Node, listed: Value, x: Instruction, indices: Instruction) -> Value:
    given = _list(n, listed)
    whole = given.stacked if given.stacked is not None else allocated(n, given, x.shape.dims[1:]).stacked
    made = n.add("scatternd_none", whole, n.unsqueeze(n.convert(indices, dt.int64), [1]), x)
    return replace(given, stacked=made)


@converts_values("TensorListConcat", "TensorListConcatV2")
def concatenated(n: Node, listed: Value, *rest: Value) -> Any:
    whole = _stacked(n, listed)
    count, size, *others = whole.shape.dims
    lengths = n.broadcast_to(n.add("dimensions_of", whole, start=1, end=2), (count,))
    return n.reshape(whole, (count * size, *others)), lengths


@converts_values("TensorListSplit")
def split(n: Node, x: Instruction, shape: Value, lengths: Instruction) -> Value:
    sizes = n.whole(lengths, "the lengths of the parts")
    if not sizes or len(set(sizes)) > 1:
        n.unsupported(f"a list of tensors of different lengths {sizes}")
    return TensorList(x.shape.dtype, n.reshape(x, (len(sizes), sizes[0], *x.shape.dims[1:])))


@converts_values("TensorListConcatLists")
def concat_lists(n: Node, a: Value, b: Value) -> Value:
    first, second = _stacked(n, a), _stacked(n, b)
    return TensorList(first.shape.dtype, n.add("concat", first, second, axis=0))


# TensorFlow 1's TensorArray: the list is the value `flow`, which orders its accesses


@converts_values("TensorArrayV3", "TensorArrayV2")
def array(n: Node, size: Instruction) -> Any:
    shape = n.shape("element_shape")
    dims = tuple(shape) if shape is not None and -1 not in shape else None
    made = TensorList(n.dtype("dtype"), None, size, dims)
    handle = Handle("array", n.name, n)
    return handle, allocated(n, made, dims) if dims is not None else made


@converts_values("TensorArrayWriteV3", "TensorArrayWriteV2")
def array_write(n: Node, handle: Value, index: Value, item: Instruction, flow: Value) -> Value:
    made = handle.node if isinstance(handle, Handle) else None
    grows = made is not None and made.flag("dynamic_size")
    return _set(n, _list(n, flow), _at(n, index), item, grows)


@converts_values("TensorArrayReadV3", "TensorArrayReadV2")
def array_read(n: Node, handle: Value, index: Value, flow: Value) -> Value:
    return n.squeeze(n.add("gather", _stacked(n, flow), _at(n, index), axis=0), [0])


@converts_values("TensorArrayGatherV3", "TensorArrayGatherV2")
def array_gather(n: Node, handle: Value, indices: Instruction, flow: Value) -> Value:
    return n.add("gather", _stacked(n, flow), n.convert(indices, dt.int64), axis=0)


@converts_values("TensorArrayScatterV3", "TensorArrayScatterV2")
def array_scatter(n: Node, handle: Value, indices: Instruction, x: Instruction, flow: Value) -> Value:
    given = _list(n, flow)
    known, length = n.constant(indices), x.shape.dims[0]
    if known is not None and isinstance(length, int) and known.tolist() == list(range(length)):
        return replace(given, stacked=x)
    if known is None and isinstance(indices.op, DynamicRange):
        return replace(given, stacked=x)  # all rows, in order
    whole = given.stacked if given.stacked is not None else allocated(n, given, x.shape.dims[1:]).stacked
    return replace(given, stacked=n.add("scatternd_none", whole, n.unsqueeze(n.convert(indices, dt.int64), [1]), x))


@converts_values("TensorArraySizeV3", "TensorArraySizeV2")
def array_size(n: Node, handle: Value, flow: Value) -> Value:
    return length_of(n, flow)


@converts_values("TensorArrayConcatV3", "TensorArrayConcatV2")
def array_concat(n: Node, handle: Value, flow: Value) -> Any:
    return concatenated(n, flow)


@converts_values("TensorArrayCloseV3", "TensorArrayCloseV2")
def array_close(n: Node, handle: Value) -> Any:
    return ()
