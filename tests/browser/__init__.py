"""The console in a real Chromium, against a real `tally up` with its demo: what is on each page, and what clicks do."""
