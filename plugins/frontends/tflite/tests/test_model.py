"""Invalid TFLite models, and missing parts."""

from __future__ import annotations

from typing import Any

import flatbuffers
import pytest

import mgx_core as mgx
from mgx_tflite.flexbuffer import read_map
from mgx_tflite.model import read_model


def test_other_files_are_refused():
    for data in (b"", b"TFL3", b"\0" * 64, b"\x1c\0\0\0TFL3" + b"\xff" * 64):
        with pytest.raises(mgx.ParseError, match="TFLite"):
            mgx.parse_buffer(data, "tflite")
    with pytest.raises(mgx.ParseError, match="not a TFLite model; it is a pointer of Git LFS"):
        mgx.parse_buffer(b"version https://git-lfs.github.com/spec/v1\n", "tflite")


def test_unknown_options_name_near_ones():
    with pytest.raises(mgx.ParameterError, match="did you mean 'signature'"):
        mgx.parse_buffer(b"", "tflite", signatur="x")


def test_attributes_of_custom_operators():
    from flatbuffers import flexbuffers

    data = flexbuffers.Dumps({"max_detections": 5, "y_scale": 10.0, "use_regular_nms": True})
    assert read_map(bytes(data)) == {"max_detections": 5, "y_scale": 10.0, "use_regular_nms": True}
    with pytest.raises(mgx.ParseError, match="custom operator"):
        read_map(b"\xff\xff\xff")


def one_tensor(dims: list[int], signature: list[int]) -> bytes:
    """A file with one float32 tensor, in the empty buffer 1, with static extents and a shape signature."""
    b = flatbuffers.Builder(0)

    def vector(values: list[int], prepend: Any) -> int:
        b.StartVector(4, len(values), 4)
        for v in reversed(values):
            prepend(v)
        return int(b.EndVector())

    def table(size: int, **fields: int) -> int:
        b.StartObject(size)
        for name, value in fields.items():
            b.PrependUOffsetTRelativeSlot(int(name[1:]), value, 0)
        return int(b.EndObject())

    lists = [vector(v, b.PrependInt32) for v in (dims, signature)]
    b.StartObject(8)
    b.PrependUOffsetTRelativeSlot(0, lists[0], 0)
    b.PrependUint32Slot(2, 1, 0)
    b.PrependUOffsetTRelativeSlot(7, lists[1], 0)
    tensor = b.EndObject()
    places = [vector([0], b.PrependInt32) for _ in range(2)]
    graph = table(5, _0=vector([tensor], b.PrependUOffsetTRelative), _1=places[0], _2=places[1])
    buffers = vector([table(1), table(1)], b.PrependUOffsetTRelative)
    graphs = vector([graph], b.PrependUOffsetTRelative)
    b.StartObject(5)
    b.PrependUint32Slot(0, 3, 0)
    b.PrependUOffsetTRelativeSlot(2, graphs, 0)
    b.PrependUOffsetTRelativeSlot(4, buffers, 0)
    b.Finish(b.EndObject(), b"TFL3")
    return bytes(b.Output())


def test_a_tensor_without_elements_may_have_an_open_extent():
    """Like a computed value; a tensor of known extents is a constant."""
    (open_,) = read_model(one_tensor([1, 0], [-1, 0]), 1 << 20).subgraphs[0].tensors
    (closed,) = read_model(one_tensor([1, 0], [1, 0]), 1 << 20).subgraphs[0].tensors
    assert open_.dims == [-1, 0] and open_.value is None
    assert closed.value is not None and closed.value.shape == (1, 0)
