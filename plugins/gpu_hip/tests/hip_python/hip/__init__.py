"""A stand-in for hip-python, for tests: the calls that they use, in its style, on whatever libamdhip64 it finds."""

from rocm.bindings import hip

__all__ = ["hip"]
