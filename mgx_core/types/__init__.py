"""Element types, extents, shapes and the data that has them."""
