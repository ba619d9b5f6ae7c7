"""The scenarios in Python, as `tpsim scenario` has them.

>>> import tpsim
>>> "qwen2-7b-h100" in [row["scenario"] for row in tpsim.scenario.list().scenarios]
True
"""

from tpsim.answers.scenario import scenario_list as list  # noqa: A004  # the verb's own words, behind its name

__all__ = ["list"]
