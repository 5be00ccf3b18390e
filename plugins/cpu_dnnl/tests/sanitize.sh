#!/bin/bash
# Builds the native module with sanitizers and runs it on the kit's ops and on the thread pool's test.
#
#   sanitize.sh address    AddressSanitizer and UBSan: the plugin's tests of the native module, and the conformance kit's ops
#   sanitize.sh thread     ThreadSanitizer: the tests of native programs and shares, and tests/pool_under_load.py
#
# PYTHON names the interpreter (default: python3) of an environment with mgx-core, mgx-ref, mgx-conformance, mgx-cpu-dnnl and
# what its pyproject.toml requires for building; everything made lies below FOLDER (default: a temporary folder).  SAMPLE: run
# every n-th case of the kit; LEVELS: which of its levels.  Loops that the JIT compiles, and oneDNN are not instrumented:
# accesses of theirs are seen where they go through instrumented code or through what the sanitizers intercept (memory, locks,
# threads).
set -euo pipefail
kind=${1:?address or thread}
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${FOLDER:-$(mktemp -d)}
case $kind in
    address) flags="-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined" libraries="libasan.so libubsan.so" ;;
    thread) flags="-fsanitize=thread" libraries="libtsan.so" ;;
    *) echo "usage: sanitize.sh address|thread" >&2; exit 2 ;;
esac
mkdir -p "$folder/$kind/site"
cmake -S "$here" -B "$folder/$kind/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG= -DPython_EXECUTABLE="$($python -c 'import sys; print(sys.executable)')" \
    -DCMAKE_CXX_FLAGS="-O1 -g1 -fno-omit-frame-pointer $flags" ${CMAKE_ARGUMENTS:-} > "$folder/$kind/configure.log"
cmake --build "$folder/$kind/build" -j "${JOBS:-2}" > "$folder/$kind/build.log"
rm -rf "$folder/$kind/site/mgx_cpu_dnnl"
cp -r "$here/mgx_cpu_dnnl" "$folder/$kind/site/"
rm -f "$folder/$kind/site/mgx_cpu_dnnl/"*.so
cp "$folder/$kind/build/"_native*.so "$folder/$kind/site/mgx_cpu_dnnl/"
# the copy is a plain package in front of whatever way the installed one is found, in processes that tests start, too
cat > "$folder/$kind/site/sitecustomize.py" <<'EOF'
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]
EOF
preload=""
for library in $libraries; do preload="$preload $(g++ -print-file-name="$library")"; done
export PYTHONPATH="$folder/$kind/site${PYTHONPATH:+:$PYTHONPATH}" PYTHONMALLOC=malloc MGX_CACHE_DIR="$folder/$kind/cache"
run() { (cd "$here/tests" && LD_PRELOAD="$preload" "$python" -m pytest -q -p no:cacheprovider "$@"); }
if [ "$kind" = address ]; then
    export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
    run test_native_*.py test_plans*.py test_loop_products.py test_packed_products.py test_packing.py test_foreign.py test_faults.py test_saved.py test_target.py
    cd "$folder"
    LD_PRELOAD="$preload" "$python" -m pytest -q -p no:cacheprovider --pyargs mgx_conformance.suite --mgx-target cpu \
        --mgx-level "${LEVELS:-ops}" --mgx-sample "${SAMPLE:-1}" --mgx-expect "$here/expected.toml"
else
    # `race_top:` takes the access alone: every call comes from libpython
    printf 'called_from_lib:%s\n' libdnnl.so > "$folder/suppressions"
    printf '%s\n' race_top:libdnnl.so race_top:libpython >> "$folder/suppressions"
    export TSAN_OPTIONS="suppressions=$folder/suppressions:ignore_noninstrumented_modules=1:halt_on_error=0:exitcode=66"
    # no forks: the sanitizer itself cannot follow threads of a forked child
    run test_native_program.py test_native_thread_scheduler.py -k "not forked"
    LD_PRELOAD="$preload" "$python" "$here/tests/pool_under_load.py"
fi
echo "clean: $kind"
