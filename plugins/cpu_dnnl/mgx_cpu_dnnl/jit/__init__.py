"""The loop compiler: groups of pointwise ops and reductions, and ops that move elements, as machine code.

Each ``compile_...`` function returns a `JitKernel`, or `No` with the reason.
"""
