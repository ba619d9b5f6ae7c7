"""A small file format to read: a machine with levels and links."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from tpsim.quantity import spec
from tpsim.quantity.errors import InputError


class LinkFields(spec.Strict):
    bandwidth: spec.BytesPerSecond
    hop_latency: spec.Seconds = 0.0


class LevelFields(spec.Strict):
    noun = "a network level"

    name: str
    topology: Literal["torus", "ring", "switch"] = "ring"
    shape: tuple[int, ...] = ()
    link: LinkFields


class MachineFile(spec.Strict):
    tpsim: Literal["machine/1"]
    name: str
    levels: list[LevelFields] = Field(default=[])
    chips: Annotated[int, Field(gt=0)] = 1
    efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    closed: bool = False
    mesh: dict[str, int] = Field(default={})
    model: str | dict[str, Any] = "none"


HEAD = "tpsim: machine/1\nname: m\n"


@pytest.fixture(scope="session")
def refusal():
    """The text of the error that a file of this format gives."""

    def text_of(body, head=HEAD, **options):
        with pytest.raises(InputError) as error:
            spec.read(spec.load(head + body, name="m.yaml"), MachineFile, **options)
        return str(error.value)

    return text_of


@pytest.fixture(scope="session")
def machine():
    """A file of this format, read."""

    def read(body, head=HEAD, **options):
        return spec.read(spec.load(head + body, name="m.yaml"), MachineFile, **options)

    return read
