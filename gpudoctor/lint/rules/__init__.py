"""One file per rule or few alike ones: `RULES`, and functions `dockerfile`, `compose`, `devcontainer` from a file to faults."""
