"""A kernel in HIP source for the gpu target of mgx."""
