"""Converters by family, which add themselves to `mgx_tflite.converter.STANDARD`; that imports a family when it may be needed."""
