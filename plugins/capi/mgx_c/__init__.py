"""The C and C++ interface of mgx: what the library's functions do, and where its headers and files are.

The library (``mgx_c/lib/libmigraphx_c.so``) holds a Python interpreter; each function of ``migraphx.h`` calls the function of the
same name in this package, which works on the objects of the `migraphx` module.
"""
