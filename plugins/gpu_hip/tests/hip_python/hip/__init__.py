"""A fake of hip-python for tests: the calls that they use, with its conventions, on any libamdhip64 that it finds."""

from rocm.bindings import hip

__all__ = ["hip"]
