"""The HTTP API of the devices backend: routes for boards and routes for operators."""
