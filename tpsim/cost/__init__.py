"""Costs: what a program sends, computes and holds, as numbers, arrays or formulas."""
