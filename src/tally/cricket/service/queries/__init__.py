"""Use cases that read: matches, display states, cached feeds, teams, leagues and diagnostics."""
