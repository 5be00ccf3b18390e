"""Plugins: hook specifications, discovery through entry points, and the manager that isolates their failures."""
