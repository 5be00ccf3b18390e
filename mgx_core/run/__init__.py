"""Compiled programs: argument binding, shape-specialized instances, execution."""
