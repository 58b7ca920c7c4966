"""End-to-end tests: the whole program with simulated services on real sockets."""
