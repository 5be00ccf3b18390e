"""A kernel in HIP text for the gpu target of mgx."""
