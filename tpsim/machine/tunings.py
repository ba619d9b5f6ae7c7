"""What a level's algorithms and protocols are tuned by, as files state it.

None is the figure of whatever is less particular: algorithm with protocol, algorithm, protocol, level.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from tpsim.machine.constant import (
    BandwidthConstant,
    CountConstant,
    HasConstants,
    LatencyConstant,
    MemoryConstant,
    RatioConstant,
)
from tpsim.quantity import spec


class Counted(spec.Value, HasConstants):
    """What the library counts with when it chooses among its ways."""

    noun: ClassVar[str] = "what the library counts"
    latency: LatencyConstant = Field(description="per call")
    hop_latency: LatencyConstant = Field(description="of one step")
    bandwidth: BandwidthConstant = Field(description="bus bandwidth: of what each device must inject")


class Rendezvous(spec.Value, HasConstants):
    """Which messages wait for their receiver."""

    noun: ClassVar[str] = "a rendezvous"
    above: MemoryConstant = Field(description="bytes of the longest message that does not wait")
    latency: LatencyConstant = Field(description="of each step of a longer one, on top of its hop")


class Protocol(spec.Value, HasConstants):
    """What differs for one protocol."""

    noun: ClassVar[str] = "a protocol"
    launch: LatencyConstant | None = Field(default=None, description="replaces the level's default launch")
    latency: LatencyConstant | None = Field(default=None, description="per call, on top of the launch")
    hop_latency: LatencyConstant | None = Field(default=None, description="of one step")
    efficiency: RatioConstant | None = Field(
        default=None, description="share of the bandwidth that large messages reach"
    )
    own_bandwidth: BandwidthConstant | None = Field(
        default=None, description="at which a device passes on its own share"
    )
    chunk_latency: LatencyConstant | None = Field(default=None, description="of each chunk that a message is cut into")
    device_latency: LatencyConstant | None = Field(default=None, description="per call and device that takes part")
    channels: CountConstant | None = Field(default=None, description="that a message opens one after the other")
    channel_bytes: MemoryConstant | None = Field(
        default=None, description="of a step that fill a channel before the next one opens"
    )
    largest_message: MemoryConstant | None = Field(
        default=None, description="to one device, from which another protocol is taken"
    )
    rendezvous: Rendezvous | None = Field(default=None, description="which messages wait for their receiver")


class TunedProtocol(Protocol):
    """What differs for one algorithm with one protocol."""

    noun: ClassVar[str] = "a protocol of an algorithm"
    counted: Counted | None = Field(
        default=None, description="what the library counts with when it chooses; none: it takes what takes least"
    )


class Tuning(Protocol):
    """What differs for one algorithm."""

    noun: ClassVar[str] = "an algorithm"
    protocols: Annotated[
        dict[str, Annotated[TunedProtocol, spec.OrNothing(TunedProtocol.model_construct)]], spec.OrNothing(dict)
    ] = spec.left_out({}, "those that it can use; none: all")
    alone: bool = Field(default=False, description="only for a collective that stays on this level")
