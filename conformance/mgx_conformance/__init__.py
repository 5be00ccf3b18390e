"""The kit with which a target of mgx proves itself: a pytest plugin and a suite of tests."""
