"""The TensorFlow frontend of mgx: converts frozen graphs and SavedModels to programs, without TensorFlow."""
