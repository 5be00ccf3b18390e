"""Cross-checks of the reference implementations: every ONNX operator against onnx.reference and onnxruntime."""
