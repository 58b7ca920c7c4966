"""The use cases of the cricket backend, one folder per area; `ports` declares the gateways."""
