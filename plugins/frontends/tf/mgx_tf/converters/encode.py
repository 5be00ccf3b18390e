"""Results encoded as strings: images, audio, serialized tensors."""

from __future__ import annotations

from mgx_core import Instruction

from ..converter import converts
from ..node import Node


@converts("EncodePng")
def encode_png(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_encode_png", x, level=n.int("compression", -1))


@converts("EncodeWav")
def encode_wav(n: Node, x: Instruction, rate: Instruction) -> Instruction:
    return n.add("tf_encode_wav", x, rate)


@converts("SerializeTensor")
def serialize_tensor(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_serialize_tensor", x)
