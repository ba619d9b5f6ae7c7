"""What an algorithm or a protocol is tuned by on a level: counts, exchanges before data, figures of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpsim.machine.constant import HasConstants

if TYPE_CHECKING:
    from tpsim.machine.constant import Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(HasConstants):
    """What a library counts with when it chooses among its ways: not what they take.

    latency      per call
    hop_latency  of one step
    bandwidth    bytes per second of what each device must inject, whatever the algorithm ("bus bandwidth")
    """

    latency: Constant
    hop_latency: Constant
    bandwidth: Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous(HasConstants):
    """From which size on a message waits for its receiver instead of going ahead into a buffer.

    above    bytes of the longest message that does not wait
    latency  what each step of longer ones takes on top of its hop
    """

    above: Constant
    latency: Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(HasConstants):
    """What differs from its level for one algorithm, one protocol, or one algorithm with one protocol.

    None is the figure of whatever is less particular: algorithm with protocol, algorithm, protocol, level.

    launch         replaces the level's default launch
    latency        per call, whatever the size, on top of the launch; None: nothing
    hop_latency    of one step
    efficiency     share of the bandwidth that large messages reach
    own_bandwidth  bytes per second at which a device passes on what it sends to itself; None costs nothing
    chunk_latency  what each chunk costs that a message is cut into; None costs nothing
    device_latency  per call and device that takes part; None costs nothing
    channels       how many share what is sent at once; a message opens one after the other
    channel_bytes  of a step that fill a channel before the next one opens; None opens all of them at once
    largest_message  bytes to one device above which another protocol is taken; of a way that is counted: no limit
    counted        of an algorithm's protocol: what the library counts with when it chooses; None: it takes the least
    rendezvous     which messages wait for their receiver; None: no step takes longer than its hop
    protocols      of an algorithm: those that it can use, with what differs; none: all of the level's
    alone          of an algorithm: only for a collective that stays on this level
    """

    launch: Constant | None = None
    latency: Constant | None = None
    hop_latency: Constant | None = None
    efficiency: Constant | None = None
    own_bandwidth: Constant | None = None
    chunk_latency: Constant | None = None
    device_latency: Constant | None = None
    channels: Constant | None = None
    channel_bytes: Constant | None = None
    largest_message: Constant | None = None
    rendezvous: Rendezvous | None = None
    counted: Counted | None = None
    protocols: Mapping[str, Tuning] = field(default_factory=dict)
    alone: bool = False
