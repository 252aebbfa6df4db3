"""One file per rule or few similar rules: `RULES`, and functions named after kinds of files: file -> faults."""
