"""Files of TensorFlow as they lie on disk: messages, tensors, the bundle of variables."""
