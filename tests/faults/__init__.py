"""Deliberate faults, injected one at a time, and the judge that notices each."""
