"""What to ask a machine. A probe asks and never interprets; each runs in a process of its own with a time limit."""
