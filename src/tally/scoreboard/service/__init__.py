"""The use cases of players, game servers, operators and jobs, one file each."""
