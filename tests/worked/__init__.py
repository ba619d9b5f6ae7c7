"""Worked problems of How to Scale Your Model: who answers what."""
