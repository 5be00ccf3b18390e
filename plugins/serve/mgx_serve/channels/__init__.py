"""Inter-process channels on one machine: a socket for messages, and one shared-memory arena per direction for tensors."""
