"""The tests mirror `src/tally`; what they share is in `conftest.py` and `needs.py`."""
