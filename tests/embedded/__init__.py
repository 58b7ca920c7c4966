"""The servers that come with Tally: how they start, stop, crash, and come back."""
