"""Wires as plain values, and mesh axes placed on them: no bandwidth, no formula."""
