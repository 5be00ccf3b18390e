"""What runs after extents that depend on data are known."""
