"""Browser tests: the console of a running `tally up` in Chromium."""
