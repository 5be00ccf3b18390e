"""Converters by family, which add themselves to `mgx_onnx.converter.STANDARD`; that imports a family when it may be needed."""
