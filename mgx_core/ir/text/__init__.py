"""The text form of modules: printer and parser, and generators of Python and C++ code."""
