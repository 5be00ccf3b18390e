"""Requests and answers between processes of one machine: a socket, and two pieces of shared memory, one a direction."""
