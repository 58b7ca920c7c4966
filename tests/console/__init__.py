"""Tests of the console's data without a browser: counts, rates and failing backends."""
