"""Data and rules of the scoreboard, without I/O or clock."""
