"""A machine from measurements: logs of collective benchmarks read, a profile fitted to them, both side by side."""
