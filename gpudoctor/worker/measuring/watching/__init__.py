"""What is watched each second while a long load runs: NVML's counters and events, and the kernel log."""
