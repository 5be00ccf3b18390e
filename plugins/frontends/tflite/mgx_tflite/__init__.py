"""The TFLite frontend of mgx: .tflite files, float and quantised, become programs, without TensorFlow."""
