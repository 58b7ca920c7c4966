"""What people, Strava and time may ask for, a file for each use; `ports` says what is asked of the outside world."""
