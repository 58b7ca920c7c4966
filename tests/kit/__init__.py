"""What all backends share, each module for itself, on real sockets where there is a wire."""
