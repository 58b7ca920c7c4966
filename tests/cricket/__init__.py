"""Tests of the cricket backend."""
