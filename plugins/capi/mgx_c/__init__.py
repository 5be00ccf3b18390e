"""The Python side of the C and C++ interface of mgx.

The library (``mgx_c/lib/libmigraphx_c.so``) embeds a Python interpreter; each function of ``migraphx.h`` calls the function of
the same name in this package, which operates on objects of the `migraphx` module.
"""
