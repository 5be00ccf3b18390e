"""TensorFlow's file formats: protobuf messages, tensors, checkpoint bundles."""
