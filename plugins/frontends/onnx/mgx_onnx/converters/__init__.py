"""Converters by family. They register in `mgx_onnx.converter.STANDARD`, which imports a family on first lookup."""
