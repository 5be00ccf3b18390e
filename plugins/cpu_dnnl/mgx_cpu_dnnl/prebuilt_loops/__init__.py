"""Prebuilt loops: sample networks of common layers, whose loops are compiled when the package is built.

A process that needs only these loops never loads LLVM: it reads their objects from a file next to the native module
(`jit/prebuilt.py`).
"""
