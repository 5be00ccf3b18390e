"""Compiles kernel source to code that a device loads: the portability prelude, the compilers, the cache."""
