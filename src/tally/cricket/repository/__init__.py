"""Tables and accesses: one file for each of the fifteen tables, and the repository that owns it."""
