"""HIP C++ text from groups and ops: what a kernel computes, written so that people can read it."""
