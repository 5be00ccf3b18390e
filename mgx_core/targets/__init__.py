"""Parts of a target: its interfaces, kernels, memory and placements."""
