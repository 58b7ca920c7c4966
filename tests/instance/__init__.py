"""Tests of what every instance has: operators, stream limits, readiness."""
