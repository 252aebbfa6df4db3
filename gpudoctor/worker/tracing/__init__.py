"""What travels into a user's Python to trace its GPU work: nothing here may change what the program does."""
