"""Macros: names under which several instructions are added to a module at once."""
