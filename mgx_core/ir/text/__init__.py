"""The text form of modules: written, and parsed back."""
