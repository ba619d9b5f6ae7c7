"""Tests against another program: what XLA's partitioner inserts for the same shardings."""
