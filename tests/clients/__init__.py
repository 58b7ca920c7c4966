"""Clients that public tools generate from the OpenAPI document, against running servers."""
