"""The cricket domain: frozen data and pure rules, without I/O and without a clock."""
