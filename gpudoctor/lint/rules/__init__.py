"""One file per rule or few similar rules: `RULES`, and functions `dockerfile`, `compose`, `devcontainer`: file -> faults."""
