"""The compiler: stages of passes, the pipeline that runs them, lowering to kernels, and memory planning."""
