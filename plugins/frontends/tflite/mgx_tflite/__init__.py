"""The TFLite frontend of mgx: converts float and quantized .tflite files to programs, without TensorFlow."""
