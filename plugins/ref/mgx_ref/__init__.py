"""The ref target: every op by its definition, on any machine."""
