"""Continuations: programs that run after data-dependent extents are known."""
