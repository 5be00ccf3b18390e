"""The target `tiny` for mgx."""
