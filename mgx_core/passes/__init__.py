"""The passes of the core, one file each."""
