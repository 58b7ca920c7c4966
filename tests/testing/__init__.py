"""Tests of the endpoint and the fixtures that tests of other projects use."""
