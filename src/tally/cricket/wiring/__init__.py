"""Builds the cricket backend from `Dependencies`: gateways, services, jobs and routes."""
