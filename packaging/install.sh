#!/bin/sh
# install.sh PREFIX [gpu] [torch]: an environment at PREFIX with mgx, built from this checkout.
# Needs Python >= 3.11 with venv and its shared library, and a C++ compiler.  PYTHON names another interpreter than python3.
set -eu
prefix=$1
shift
source=$(cd "$(dirname "$0")/.." && pwd)
packages=". plugins/ref plugins/frontends/onnx plugins/frontends/tf plugins/frontends/tflite plugins/cpu_dnnl plugins/serve"
packages="$packages plugins/compat/migraphx plugins/capi"
for more in "$@"; do
    case $more in
        gpu) packages="$packages plugins/gpu_hip" ;;
        torch) packages="$packages plugins/frontends/torch plugins/compat/torch_migraphx" ;;
        *) echo "install.sh: unknown part '$more'; one of gpu, torch" >&2; exit 2 ;;
    esac
done
"${PYTHON:-python3}" -m venv "$prefix"
"$prefix/bin/python" -m pip install --quiet --no-cache-dir --upgrade pip
cd "$source"
# one command, so that the packages find each other here and not on an index
set --
for package in $packages; do set -- "$@" "./$package"; done
"$prefix/bin/python" -m pip install --quiet --no-cache-dir "$@"
