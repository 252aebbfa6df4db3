"""Judges pasted texts: which known messages they contain, and what these mean. Pure."""
