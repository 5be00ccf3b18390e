"""The ONNX frontend: converts models of opsets 1 to 28 to programs."""
