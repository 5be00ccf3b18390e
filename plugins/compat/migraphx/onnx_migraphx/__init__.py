"""ONNX's backend interface on the `migraphx` module, under the name that MIGraphX gives it."""
