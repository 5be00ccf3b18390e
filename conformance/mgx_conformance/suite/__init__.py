"""The tests that every target runs; one file a level."""
