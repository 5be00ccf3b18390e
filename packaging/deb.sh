#!/bin/sh
# deb.sh FOLDER [gpu] [torch]: FOLDER/mgx_VERSION_ARCHITECTURE.deb, which installs /opt/mgx and links to its commands.
# The package is for the distribution that it is built on, since it holds compiled modules of that Python.
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
source=$(cd "$(dirname "$0")/.." && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
sh "$source/packaging/install.sh" "$stage/opt/mgx" "$@"
# scripts and records name the place where the environment was made
grep -rlI --null "$stage" "$stage/opt/mgx" | xargs -0 -r sed -i "s#$stage##g"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
mkdir -p "$stage/usr/bin" "$stage/DEBIAN"
for command in mgx-driver migraphx-driver optimize_model mgx-c mgx-serve; do
    ln -s "/opt/mgx/bin/$command" "$stage/usr/bin/$command"
done
read -r version minor next <<END
$("$stage/opt/mgx/bin/python" -c 'import sys, importlib.metadata as m
print(m.version("mgx-core"), f"3.{sys.version_info.minor}", f"3.{sys.version_info.minor + 1}")')
END
architecture=$(dpkg --print-architecture)
cat > "$stage/DEBIAN/control" <<END
Package: mgx
Version: $version
Architecture: $architecture
Maintainer: mgx authors
Depends: python3 (>= $minor), python3 (<< $next), libpython$minor
Suggests: g++
Conflicts: migraphx
Description: Graph compiler and inference engine for deep learning
 Reads ONNX, TensorFlow and TFLite models, compiles them for processors and
 GPUs, and runs them; with MIGraphX's Python module, driver, C and C++ library.
END
# what the interpreter wrote beside the modules is of no package, and would keep their folders alive
cat > "$stage/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
find /opt/mgx -name __pycache__ -prune -exec rm -rf {} +
END
chmod 755 "$stage/DEBIAN/prerm"
dpkg-deb -Zgzip --root-owner-group --build "$stage" "$folder/mgx_${version}_$architecture.deb"
