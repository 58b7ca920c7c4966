"""A mail server for the demo and for tests: accepts mails over SMTP and shows the latest ones."""
