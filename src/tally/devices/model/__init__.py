"""Records, field validation and submitted readings of the devices backend, without I/O or clock."""
