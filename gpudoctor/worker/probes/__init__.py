"""The questions to a machine. A probe asks and never interprets; each runs in its own process with a time limit."""
