"""The gpu target of mgx: HIP C++ kernels and vendor libraries on AMD and NVIDIA GPUs."""
