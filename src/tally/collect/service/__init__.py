"""The use cases of the collect backend, one module each."""
