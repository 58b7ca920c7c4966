"""The tests. They mirror `src/tally`; `conftest.py` and `needs.py` are shared by all."""
