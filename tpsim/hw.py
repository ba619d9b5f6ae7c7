"""The machines in Python, as `tpsim hw` has them.

>>> import tpsim
>>> tpsim.hw.show("tpu-v5e").machine.name
'tpu-v5e'
"""

from tpsim.answers.hw import hw_list as list  # noqa: A004  # the verb's own words, behind its name
from tpsim.answers.hw import hw_show as show
from tpsim.answers.hw import hw_validate as validate
from tpsim.calibrate.fit import hw_fit as fit

__all__ = ["fit", "list", "show", "validate"]
