"""The IR: instructions in modules, their text form and their invariants."""
