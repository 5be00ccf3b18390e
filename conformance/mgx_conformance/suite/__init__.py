"""The tests that every target runs; one file per level."""
