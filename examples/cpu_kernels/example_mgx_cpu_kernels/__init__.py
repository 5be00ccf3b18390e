"""Three ways to add a kernel to the cpu target of mgx."""
