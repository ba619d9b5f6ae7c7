"""Machines: their figures with sources, what each algorithm moves on each fabric, and seconds."""
