"""Macros: named operations that expand into several instructions when they are added to a module."""
