"""Runs a user's command, once as it is and again with one thing changed, and leaves nothing of it behind."""
