"""What cricket is to this backend: frozen data and pure rules, with no input or output and no clock."""
