"""Passes over whole graphs: constant folding, merging, fusion, outlining."""
