"""What people, apps and jobs may ask of cricket: one file for each use case."""
