"""Rewrite rules: the engine that applies them, and tables of rules by subject."""
