"""Docker and Podman: their command line, their GPU options, the containers they start."""
