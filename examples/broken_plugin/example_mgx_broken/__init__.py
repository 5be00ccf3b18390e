"""A package whose plugin module cannot be imported."""
