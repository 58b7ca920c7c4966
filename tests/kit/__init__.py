"""Tests of the kit, one module per module, on real sockets where HTTP is involved."""
