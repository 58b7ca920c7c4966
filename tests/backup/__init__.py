"""Back-ups: taken under load, restored elsewhere, refused where they are damaged or something is in the way."""
