"""Cases of `ops.py`: models of one ONNX operation each, with realistic sizes and the attributes that affect how it runs."""

from .case import Case
from .convolutions import convolutions
from .elementwise import elementwise
from .images_and_sound import images_and_sound
from .indexing import indexing
from .products import products
from .reducing import reducing
from .selecting import selecting

__all__ = ["FAMILIES", "Case"]

FAMILIES = (selecting, indexing, reducing, convolutions, products, elementwise, images_and_sound)
