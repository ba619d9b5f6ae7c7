"""What a level's algorithms and protocols are tuned by, as files state it.

None is the figure of whatever is less particular: algorithm with protocol, algorithm, protocol, level.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from tpsim.machine.constant import Bandwidth, Count, HasConstants, Latency, Memory, Ratio
from tpsim.quantity import spec


class Counted(spec.Value, HasConstants):
    """What the library counts with when it chooses among its ways."""

    noun: ClassVar[str] = "what the library counts"
    latency: Latency = Field(description="per call")
    hop_latency: Latency = Field(description="of one step")
    bandwidth: Bandwidth = Field(description="bus bandwidth: of what each device must inject")


class Rendezvous(spec.Value, HasConstants):
    """Which messages wait for their receiver."""

    noun: ClassVar[str] = "a rendezvous"
    above: Memory = Field(description="bytes of the longest message that does not wait")
    latency: Latency = Field(description="of each step of a longer one, on top of its hop")


class Protocol(spec.Value, HasConstants):
    """What differs for one protocol."""

    noun: ClassVar[str] = "a protocol"
    launch: Latency | None = Field(default=None, description="replaces the level's default launch")
    latency: Latency | None = Field(default=None, description="per call, on top of the launch")
    hop_latency: Latency | None = Field(default=None, description="of one step")
    efficiency: Ratio | None = Field(default=None, description="share of the bandwidth that large messages reach")
    own_bandwidth: Bandwidth | None = Field(default=None, description="at which a device passes on its own share")
    chunk_latency: Latency | None = Field(default=None, description="of each chunk that a message is cut into")
    device_latency: Latency | None = Field(default=None, description="per call and device that takes part")
    channels: Count | None = Field(default=None, description="that a message opens one after the other")
    channel_bytes: Memory | None = Field(
        default=None, description="of a step that fill a channel before the next one opens"
    )
    largest_message: Memory | None = Field(
        default=None, description="to one device, from which another protocol is taken"
    )
    rendezvous: Rendezvous | None = Field(default=None, description="which messages wait for their receiver")


class Way(Protocol):
    """What differs for one algorithm with one protocol."""

    noun: ClassVar[str] = "a protocol of an algorithm"
    counted: Counted | None = Field(
        default=None, description="what the library counts with when it chooses; none: it takes what takes least"
    )


class Tuning(Protocol):
    """What differs for one algorithm."""

    noun: ClassVar[str] = "an algorithm"
    protocols: Annotated[dict[str, Annotated[Way, spec.OrNothing(Way.model_construct)]], spec.OrNothing(dict)] = (
        spec.left_out({}, "those that it can use; none: all")
    )
    alone: bool = Field(default=False, description="only for a collective that stays on this level")
