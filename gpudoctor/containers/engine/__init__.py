"""Docker and Podman: their command line, their GPU options, what they started."""
