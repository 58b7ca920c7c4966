"""Request and response bodies of the collect API, and their conversion from and to the model."""
