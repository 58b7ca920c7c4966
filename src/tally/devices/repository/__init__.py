"""The four tables of the devices backend, as seed 004 locked them, each with the one repository that owns it."""
