"""Generates the C sources of the library from its header.

python generate.py HEADER FOLDER

FOLDER/embedding.c: the embedding of Python by cffi, with one function `py_NAME` for each function NAME of the header.
FOLDER/entries.c: the functions of the header; each initializes Python if necessary and calls its `py_NAME`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent


def declarations() -> object:
    """Imports the header parser from the package's source file, since the package is not installed yet."""
    path = HERE.parent / "mgx_c" / "declarations.py"
    spec = importlib.util.spec_from_file_location("declarations", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["declarations"] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    header, folder = Path(sys.argv[1]), Path(sys.argv[2])
    read = declarations()
    text = header.read_text()
    functions = [f for f in read.functions(text) if f.name != "migraphx_operation_create"]  # type: ignore[attr-defined]
    created = "migraphx_operation_t* operation, const char* name, const char* attributes"
    exported = [(f.name, f.arguments, [p.name for p in f.parameters]) for f in functions]
    inner = [*((name, arguments) for name, arguments, _ in exported), ("migraphx_operation_create", created)]

    ffi = FFI()
    types = read.types(text)  # type: ignore[attr-defined]
    plain = "\n".join(f"migraphx_status py_{name}({arguments});" for name, arguments in inner)
    ffi.cdef(types + "\nint fputs_out(const char* text);")
    ffi.embedding_api(plain + "\nint py_mgx_start(void);\nconst char* py_mgx_last_error(void);")
    ffi.set_source(
        "_mgx_c",
        "#include <stdio.h>\n#include <migraphx/migraphx.h>\n"
        "static int fputs_out(const char* text) { int done = fputs(text, stdout); fflush(stdout); return done; }\n",
    )
    ffi.embedding_init_code("import mgx_c.library\nfrom _mgx_c import ffi, lib\nmgx_c.library.install(ffi, lib)")
    ffi.emit_c_code(str(folder / "embedding.c"))

    lines = ["#include <migraphx/migraphx.h>", '#include "start.h"', ""]
    for name, arguments, names in exported:
        lines.append(f"extern migraphx_status py_{name}({arguments});")
        lines.append(f"migraphx_status {name}({arguments})")
        lines.append(f"{{ return mgx_started() ? py_{name}({', '.join(names)}) : migraphx_status_unknown_error; }}")
        lines.append("")
    (folder / "entries.c").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
