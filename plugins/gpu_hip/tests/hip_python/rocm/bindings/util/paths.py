"""Where libraries are: under $ROCM_PATH, else wherever the system finds them."""

import os


def get_library_path(shortname):
    path = os.path.join(os.environ.get("ROCM_PATH", "/opt/rocm"), "lib", f"lib{shortname}.so")
    return (path if os.path.exists(path) else os.path.basename(path)).encode()
