"""What is no TFLite model, and what is not there."""

from __future__ import annotations

import pytest

import mgx_core as mgx
from mgx_tflite.flexbuffer import read_map


def test_other_files_are_refused():
    for data in (b"", b"TFL3", b"\0" * 64, b"\x1c\0\0\0TFL3" + b"\xff" * 64):
        with pytest.raises(mgx.ParseError, match="TFLite"):
            mgx.parse_buffer(data, "tflite")


def test_unknown_options_name_near_ones():
    with pytest.raises(mgx.ParameterError, match="did you mean 'signature'"):
        mgx.parse_buffer(b"", "tflite", signatur="x")


def test_attributes_of_custom_operators():
    from flatbuffers import flexbuffers

    data = flexbuffers.Dumps({"max_detections": 5, "y_scale": 10.0, "use_regular_nms": True})
    assert read_map(bytes(data)) == {"max_detections": 5, "y_scale": 10.0, "use_regular_nms": True}
    with pytest.raises(mgx.ParseError, match="custom operator"):
        read_map(b"\xff\xff\xff")
