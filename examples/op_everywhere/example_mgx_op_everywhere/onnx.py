"""The operator ClipRows of the ONNX domain `example`."""

from mgx_onnx.converter import Converters

from .op import ClipRows

CONVERTERS = Converters()


@CONVERTERS.converts("ClipRows", domain="example")
def clip_rows(n, x):
    return n.add(ClipRows(limit=n.attr("limit", 1.0)), x)
