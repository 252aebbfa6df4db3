"""How measured numbers are judged: what is expected of this machine, and why a slow GPU is slow. Pure, shared by checks."""
