"""Second opinions on the definitions: every ONNX operator against onnx.reference and onnxruntime, where they have it."""
