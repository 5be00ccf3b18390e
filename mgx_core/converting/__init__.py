"""Conversion of other formats: tables of converters, a builder of instructions, values known while a model is read."""
