"""Live matches: polling, processing, publishing and the push fan-out."""
