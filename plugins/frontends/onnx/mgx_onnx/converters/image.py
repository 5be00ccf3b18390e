"""Decoding of images."""

from __future__ import annotations

from mgx_core import Instruction

from ..converter import converts
from ..node import Node


@converts("ImageDecoder", since=20)
def image_decoder(n: Node, stream: Instruction) -> Instruction:
    return n.add("image_decoder", stream, pixel_format=n.attr("pixel_format", "RGB"))
