"""The TensorFlow frontend of mgx: frozen graphs and SavedModels become programs, without TensorFlow."""
