"""Experiments: what to take away from a program that fails or is slow, in which order, and what the outcomes prove. Pure."""
