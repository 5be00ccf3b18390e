"""Generators of HIP C++ kernel source from ops and groups."""
