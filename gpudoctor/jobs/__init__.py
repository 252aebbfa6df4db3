"""Programs that run: watched from outside, traced from inside, or found standing still."""
