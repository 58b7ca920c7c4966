"""Servers that come with Tally: a real PostgreSQL and a real Valkey, started from wheels where no address of one is given.

They run beside the program, on Unix sockets in its data directory that their owner alone can use,
and stop with it, however it ends. Whoever starts a second program on the same directory joins the
servers of the first, and takes over when the first one is gone.
"""
