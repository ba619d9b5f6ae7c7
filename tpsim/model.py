"""The models in Python, as `tpsim model` has them.

>>> import tpsim
>>> tpsim.model.show("gpt-tiny").parameters["total"] > 0
True
"""

from tpsim.answers.model import model_list as list  # noqa: A004  # the verb's own words, behind its name
from tpsim.answers.model import model_show as show

__all__ = ["list", "show"]
