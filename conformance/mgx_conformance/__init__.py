"""The conformance kit: a pytest plugin and a test suite that verify any mgx target."""
