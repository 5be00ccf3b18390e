"""HIP C++ text from groups and ops: readable text of what a kernel computes."""
