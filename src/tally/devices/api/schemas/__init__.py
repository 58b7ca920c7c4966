"""Request and response bodies of the devices API, and their conversion from and to the model."""
