"""The program: instructions in modules, their text form, their invariants."""
