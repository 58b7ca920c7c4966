"""Read-only use cases: matches, display states, teams, leagues and admin look-ups."""
