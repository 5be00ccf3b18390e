"""Layers that most networks have, and what compiles their loops when the package is built.

A process that meets only these loads no LLVM: it reads the objects from a file beside the native module (`jit/ready.py`).
"""
