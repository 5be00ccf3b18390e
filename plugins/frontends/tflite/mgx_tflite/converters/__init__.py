"""Converters by family. They register in `mgx_tflite.converter.STANDARD`, which imports a family on first lookup."""
