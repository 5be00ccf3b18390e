# Writes RESULT, a source file with hashes of the sources in FOLDER, which mgx_cpu_dnnl/native_sources.py compares with the checkout.
file(GLOB sources RELATIVE ${FOLDER} ${FOLDER}/CMakeLists.txt ${FOLDER}/src/*.cmake ${FOLDER}/src/*.cpp ${FOLDER}/src/*.h)
list(SORT sources)
foreach(source IN LISTS sources)
  file(SIZE ${FOLDER}/${source} size)
  file(SHA256 ${FOLDER}/${source} hash)
  string(APPEND sizes "${source} ${size}\n")
  string(APPEND hashes "${source} ${hash}\n")
endforeach()
string(SHA256 sizes "${sizes}")
string(SHA256 hashes "${hashes}")
file(WRITE ${RESULT} "#include \"sources.h\"

const char *const mgx::source_sizes = \"${sizes}\";
const char *const mgx::source_hashes = \"${hashes}\";
")
