"""What a target is made of: its interfaces, kernels, memory and placements."""
