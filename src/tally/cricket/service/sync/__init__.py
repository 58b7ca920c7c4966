"""Synchronizes leagues, teams and fixtures from the score service."""
