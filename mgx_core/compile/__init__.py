"""From a program to what runs: stages, the pipeline that runs them, lowering and planning."""
