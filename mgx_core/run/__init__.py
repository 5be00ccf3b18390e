"""Compiled programs: binding of arguments, instances by shape, execution."""
