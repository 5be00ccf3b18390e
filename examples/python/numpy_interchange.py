"""Passes arrays into and out of a program without copies: results as arrays, views in other layouts, shared memory."""

from __future__ import annotations

import numpy as np

import migraphx


def main() -> None:
    program = migraphx.program()
    module = program.get_main_module()
    x = module.add_parameter("x", migraphx.shape(type="float", lens=[2, 3]))
    weights = module.add_literal(np.arange(12, dtype=np.float32).reshape(3, 4))
    module.add_return([module.add_instruction(migraphx.op("dot"), [x, weights])])
    program.compile(migraphx.get_target("cpu"))

    given = np.ones((2, 3), np.float32)
    (result,) = program.run({"x": given})
    array = np.array(result, copy=False)
    print("a result is an array:", array.tolist())
    print("on the same memory:", array.ctypes.data == result.data_ptr())

    argument = migraphx.argument(given)
    given[0, 0] = 10
    print("an argument is the array that it was made from:", argument.tolist()[0] == 10)
    print("buffers of other kinds do as well:", program.run({"x": memoryview(given)})[0].get_shape())

    turned = np.asfortranarray(given)
    same = np.array_equal(np.array(program.run({"x": turned})[0]), np.array(program.run({"x": given})[0]))
    print("so does another layout:", same)


if __name__ == "__main__":
    main()
