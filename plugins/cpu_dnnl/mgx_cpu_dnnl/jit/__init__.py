"""Loop compiler: generates machine code for fused pointwise ops and reductions, products, attention and data movement.

Each ``compile_...`` function returns a `JitKernel`, or `No` with the reason. A kernel is, in order of preference, a loop of
the native module, a prebuilt or cached object, bytecode for the native interpreter, or LLVM IR that is compiled on first use.
"""
