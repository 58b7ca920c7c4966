"""What a player, a game server, an operator or a job may ask of the scoreboard: one file for each use case."""
