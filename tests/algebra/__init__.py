"""Tests of the algebra floor."""
