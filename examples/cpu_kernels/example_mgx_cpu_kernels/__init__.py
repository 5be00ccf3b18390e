"""Three ways to bring a kernel to the cpu target of mgx."""
