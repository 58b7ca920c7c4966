"""The four tables of the devices backend, as locked by seed 004, each with its repository."""
