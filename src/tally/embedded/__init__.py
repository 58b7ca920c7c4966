"""Embedded PostgreSQL and Valkey, started from wheels when no external server is configured.

The servers are child processes on Unix sockets in the data directory, which only its owner can
access. They stop with the program, however it ends. A second program on the same data directory
shares the servers of the first, and takes over when the first one ends.
"""
