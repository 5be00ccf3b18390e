"""Functions of the C library over vectors, lane by lane."""

from __future__ import annotations

from .code import Code, V

__all__ = ["libm"]


def libm(c: Code, name: str, *args: V) -> V:
    """Returns the C library's function lane by lane."""
    a = args[0]
    function = name + ("f" if a.elem == "float" else "")
    if not a.n:
        return c.call(function, a.elem, 0, *args)
    helper = f"lanes_{function}_{a.n}"
    if helper not in c.extra:
        c.declared[function] = f"declare {a.elem} @{function}({', '.join([a.elem] * len(args))})"
        c.helper(helper, _lanes(helper, function, a, len(args)))
    refs = ", ".join(f"{x.type} {x.ref}" for x in args)
    return c.make(f"call {a.type} @{helper}({refs})", a.elem, a.n)


def _lanes(helper: str, function: str, a: V, count: int) -> str:
    names = [f"%x{i}" for i in range(count)]
    lines = [
        f"define internal {a.type} @{helper}({', '.join(f'{a.type} {x}' for x in names)}) noinline nounwind {{",
        "entry:",
    ]
    for i in range(count):
        lines.append(f"  %m{i} = alloca {a.type}, align 64")
        lines.append(f"  store {a.type} %x{i}, ptr %m{i}, align 64")
    lines += ["  br label %loop", "loop:", "  %i = phi i64 [0, %entry], [%j, %loop]"]
    for i in range(count):
        lines.append(f"  %p{i} = getelementptr {a.elem}, ptr %m{i}, i64 %i")
        lines.append(f"  %s{i} = load {a.elem}, ptr %p{i}")
    lines.append(f"  %r = call {a.elem} @{function}({', '.join(f'{a.elem} %s{i}' for i in range(count))})")
    lines += [
        f"  store {a.elem} %r, ptr %p0",
        "  %j = add i64 %i, 1",
        f"  %c = icmp ult i64 %j, {a.n}",
        "  br i1 %c, label %loop, label %done",
        "done:",
        f"  %out = load {a.type}, ptr %m0, align 64",
        f"  ret {a.type} %out",
        "}",
    ]
    return "\n".join(lines)
