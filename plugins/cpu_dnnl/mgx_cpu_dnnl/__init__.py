"""The cpu target: oneDNN primitives and compiled loops, run by a native executor."""

from __future__ import annotations
