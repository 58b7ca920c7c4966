"""End-to-end tests: the whole program beside simulated services on real sockets."""
