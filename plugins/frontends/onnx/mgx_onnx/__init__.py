"""The ONNX frontend: models of opsets 1 to 28 become programs."""
