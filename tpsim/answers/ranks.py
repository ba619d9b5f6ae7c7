"""The ranks of one collective on a machine: where they lie, as they are asked for."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tpsim.algebra.mesh import Mesh
from tpsim.fabric.placement import place
from tpsim.fabric.wires import Wires, ranks_text
from tpsim.quantity.errors import InputError
from tpsim.question.inputs import asked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.fabric.placement import Placement
    from tpsim.machine.profile import Machine


def placed(machine: Machine, ranks: int, level: str | None) -> tuple[Placement, tuple[str, ...]]:
    """The ranks on the machine, and what was taken for granted about the chips beside them."""
    if ranks < 1:
        raise InputError.one("bad-ranks", f"there cannot be {ranks} ranks", remedy="give 1 or more")
    if level is None:
        return place(machine.levels, Mesh({"ranks": ranks})), ()
    carriers = [text.strip() for text in level.split(",")]
    sides = dict(_beside(machine.levels, carriers))
    beside = {f"beside {name}": side for name, side in sides.items()}
    binding = {"ranks": carriers, **{f"beside {name}": [name] for name in sides}}
    placement = place(machine.levels, Mesh({**beside, "ranks": ranks}), binding)
    notes = [f"the slice has {side} chips along {name}" for name, side in sides.items()]
    return placement, (*notes, *_left_empty(placement, ranks, carriers))


def _left_empty(placement: Placement, ranks: int, carriers: Sequence[str]) -> Iterator[str]:
    """What was named and has no rank, and where all of them went instead."""
    route, names = placement.route(["ranks"]), [carrier.partition(":")[0] for carrier in carriers]
    empty = [name for name in names if not any(name in (segment.level, segment.axis) for segment in route)]
    if empty and route:
        share = next(part for part in range(ranks // 2, 0, -1) if not ranks % part)
        example = ",".join([f"{route[0].axis}:{share}", *(name for name in names if name != route[0].axis)])
        yield f"no rank lies on {', '.join(empty)}: {ranks_text(route)} holds all; --level {example} says otherwise"


def on_command_line(machine: Machine, ranks: int, level: str | None) -> str:
    """The flags that ask for the same ranks on the same machine."""
    words = ["--hw", asked("hardware", machine.path), "--ranks", str(ranks)]
    return shlex.join([*words, *(["--level", level] if level else [])])


def _beside(levels: Sequence[Wires], carriers: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The physical axes of a torus that closes on cubes and was named by axis: those not named have a cube's side.

    An axis that is timed alone is meant as an axis of a slice, not as a slice of its own.
    """
    named = {carrier.partition(":")[0] for carrier in carriers}
    for level in levels:
        axes = [f"{level.name}.{index}" for index in range(len(level.shape))]
        if level.wrap.cube is not None and named & set(axes):
            yield from ((axis, side) for axis, side in zip(axes, level.wrap.cube, strict=True) if axis not in named)
