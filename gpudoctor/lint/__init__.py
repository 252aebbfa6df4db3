"""GPU faults in Dockerfiles, compose files and devcontainer.json, found without an engine."""
