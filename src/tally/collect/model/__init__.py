"""Records and rules of the collect backend, without I/O or clock."""
