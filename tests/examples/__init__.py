"""Runs the programs of `examples/` as a reader would: as programs, against a real server."""
