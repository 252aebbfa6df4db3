"""A program that does not move: what each of its processes, ranks and GPUs waits for. The program is only looked at."""
