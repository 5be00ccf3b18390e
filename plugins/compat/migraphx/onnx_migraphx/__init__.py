"""ONNX's backend interface for the `migraphx` module, under MIGraphX's name."""
