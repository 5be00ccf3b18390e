"""Plugins: hooks, the manager that finds and guards them, and the entry points they come from."""
