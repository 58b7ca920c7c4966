"""Syncs reference data from the score service."""
