"""The devices backend, from its repositories to `kill -9` of the server, on every engine that is to be had."""
