"""Library paths: under $ROCM_PATH, otherwise the system's search path."""

import os


def get_library_path(shortname):
    path = os.path.join(os.environ.get("ROCM_PATH", "/opt/rocm"), "lib", f"lib{shortname}.so")
    return (path if os.path.exists(path) else os.path.basename(path)).encode()
