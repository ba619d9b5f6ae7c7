"""Collectives played step by step on small fabrics, counting bytes per link: code that knows no closed form."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

HALF = Fraction(1, 2)


class Run:
    """Bytes per step and directed link."""

    def __init__(self):
        self.loads = defaultdict(lambda: defaultdict(Fraction))

    def send(self, step: int, link: Hashable, size: Fraction | int) -> None:
        """`size` bytes over `link`, whose first part is the sender."""
        self.loads[step][link] += size

    @property
    def steps(self):
        return len(self.loads)

    @property
    def total(self):
        return max(self.per_link().values(), default=0)

    @property
    def serial(self):
        return sum(max(links.values()) for links in self.loads.values())

    def per_link(self):
        summed = defaultdict(Fraction)
        for links in self.loads.values():
            for link, size in links.items():
                summed[link] += size
        return summed

    def mean_sent(self, devices):
        return sum(self.per_link().values(), Fraction(0)) / devices


def spread(run, n, start, way, reach, *, size, joined=True):
    """One piece that travels `reach` hops from `start`, one a step; yields every device that it comes to."""
    at = start
    for step in range(reach):
        to = (at + way) % n if joined else at + way
        if not 0 <= to < n:
            return
        run.send(step, (at, to, way), size)
        at = to
        yield at


def gathered(n, pieces):
    """An all-gather of n chunks in halves; `pieces(o)` yields (half, way, reach). Everyone must end with everything."""
    run, held = Run(), {device: {(device, 0), (device, 1)} for device in range(n)}
    for origin in range(n):
        for half, way, reach, joined in pieces(origin):
            for at in spread(run, n, origin, way, reach, size=HALF, joined=joined):
                assert (origin, half) not in held[at], "nothing is sent twice"
                held[at].add((origin, half))
    assert all(len(found) == 2 * n for found in held.values())
    return run


def two_way_ring(n):
    """The chunk goes both ways; what is left for the antipode of an even ring goes half each way."""
    near = (n - 1) // 2
    odd_one = n - 1 - 2 * near
    return gathered(
        n,
        lambda _: [
            (half, way, near + (odd_one if (way > 0) == (half > 0) else 0), True) for half in (0, 1) for way in (1, -1)
        ],
    )


def opposite_rings(n):
    return gathered(n, lambda _: [(0, 1, n - 1, True), (1, -1, n - 1, True)])


def one_way_ring(n, way=1):
    return gathered(n, lambda _: [(0, way, n - 1, True), (1, way, n - 1, True)])


def line(n):
    return gathered(n, lambda _: [(half, way, n, False) for half in (0, 1) for way in (1, -1)])


def backwards(run):
    """A gather run backwards is a reduce-scatter: every message the other way, the last one first."""
    back, last = Run(), max(run.loads, default=0)
    for step, links in run.loads.items():
        for (at, to, way), size in links.items():
            back.send(last - step, (to, at, -way), size)
    return back


def after(first, second):
    both, shift = Run(), max(first.loads, default=-1) + 1
    for run, offset in ((first, 0), (second, shift)):
        for step, links in run.loads.items():
            for link, size in links.items():
                both.send(step + offset, link, size)
    return both


def exchanged(n, ways, joined=True):
    """An all-to-all of n*n chunks of 1: `ways(distance)` yields (way, share) of the chunk to that distance."""
    run = Run()
    for source, target in product(range(n), repeat=2):
        for way, share in ways(target - source):
            hops = (way * (target - source)) % n if joined else abs(target - source)
            *_, last = [source, *spread(run, n, source, way, hops, size=share, joined=joined)]
            assert last == target
    return run


def shortest(n):
    def ways(distance):
        right = distance % n
        if 2 * right == n:
            return [(1, HALF), (-1, HALF)]
        return [(1, 1)] if 2 * right < n else [(-1, 1)]

    return exchanged(n, ways)


def shortest_unsplit(n):
    return exchanged(n, lambda distance: [(1, 1)] if 2 * (distance % n) <= n else [(-1, 1)])


def one_way_exchange(n):
    return exchanged(n, lambda _: [(1, 1)])


def line_exchange(n):
    return exchanged(n, lambda distance: [(1 if distance > 0 else -1, 1)], joined=False)


def farthest_first(n):
    """An all-to-all on a line with one chunk per link and slot: of those that wait, the one with most way to go."""
    run = Run()
    waiting = {at: [(at, target) for target in range(n) if target != at] for at in range(n)}
    slot = 0
    while any(waiting.values()):
        moves = []
        for at, way in product(range(n), (1, -1)):
            going = [chunk for chunk in waiting[at] if (chunk[1] - at) * way > 0]
            if going:
                moves.append((at, way, max(going, key=lambda chunk: abs(chunk[1] - at))))
        for at, way, chunk in moves:
            run.send(slot, (at, at + way, way), 1)
            waiting[at].remove(chunk)
            if chunk[1] != at + way:
                waiting[at + way].append(chunk)
        slot += 1
    return run


def centre_and_back(n, pieces):
    """All-reduce on a line: sums travel to the centre, results back, `pieces` one after the other."""
    run, centre = Run(), n // 2
    done = {}
    for piece in range(pieces):
        for at in [*range(centre), *range(n - 1, centre, -1)]:
            outer = done.get((at - 1 if at < centre else at + 1, piece, "in"), -1)
            before = done.get((at, piece - 1, "in"), -1)
            done[at, piece, "in"] = max(outer, before) + 1
            run.send(done[at, piece, "in"], (at, at + 1 if at < centre else at - 1, "in"), Fraction(1, pieces))
        summed = max((done.get((at, piece, "in"), -1) for at in (centre - 1, centre + 1)), default=-1)
        for at in [*range(centre - 1, -1, -1), *range(centre + 1, n)]:
            inner = at + 1 if at < centre else at - 1
            have = summed if inner == centre else done[inner, piece, "out"]
            before = done.get((at, piece - 1, "out"), -1)
            done[at, piece, "out"] = max(have, before) + 1
            run.send(done[at, piece, "out"], (inner, at, "out"), Fraction(1, pieces))
    return run


def ports(run, side=0):
    """The same run seen by each device's port: senders for side 0, receivers for 1."""
    seen = Run()
    for step, links in run.loads.items():
        for link, size in links.items():
            seen.send(step, link[side], size)
    return seen


def direct_gather(n):
    run = Run()
    for source, target in product(range(n), repeat=2):
        if source != target:
            run.send(0, (source, target), 1)
    return ports(run)


def bruck_gather(n):
    """In round k a device sends all that it has, up to what lacks, to the device 2^k before it."""
    run = Run()
    held = {device: [device] for device in range(n)}
    reach = step = 1
    while reach < n:
        sent = {device: found[: n - reach] for device, found in held.items()}
        for device, chunks in sent.items():
            run.send(step, device, len(chunks))
            held[(device - reach) % n] = held[(device - reach) % n] + chunks
        reach, step = 2 * reach, step + 1
    assert all(sorted(found) == list(range(n)) for found in held.values())
    return run


def one_shot(n):
    run = Run()
    for source, target in product(range(n), repeat=2):
        if source != target:
            run.send(0, source, n)
    return run


def in_switch(n):
    """All-reduce of n shards of 1: the owner reads the sum of all copies, then stores it to all."""
    sent, received = Run(), Run()
    for owner, device in product(range(n), repeat=2):
        sent.send(0, device, 1)
        received.send(1, device, 1)
        if owner == device:
            received.send(0, owner, 1)
            sent.send(1, owner, 1)
    return sent, received


def tree(n):
    """Parents of a binary tree over the ranks in which every second rank is a leaf."""
    parents = {}
    for rank in range(1, n):
        bit = rank & -rank
        up = (rank ^ bit) | (bit << 1)
        parents[rank] = up if up < n else rank ^ bit
    return parents


def double_tree_sent(n):
    """Bytes that each device sends in an all-reduce of 2: half over a tree, half over the same with ranks moved."""
    sent = defaultdict(int)
    for child, parent in tree(n).items():
        for moved in (lambda rank: rank, lambda rank: (n - 1 - rank) if n % 2 == 0 else (rank + 1) % n):
            sent[moved(child)] += 1
            sent[moved(parent)] += 1
    return sent


def depth(n):
    parents = tree(n)

    def up(rank):
        return 0 if rank not in parents else 1 + up(parents[rank])

    return max(map(up, range(n)))


def interleaved(n, groups, joined):
    """`groups` all-gathers at once on every groups-th device of one ring or line, hop by hop of the wires."""
    run, size = Run(), n * groups
    base = two_way_ring(n) if joined else line(n)
    for step, links in base.loads.items():
        for (at, _, way), sent in links.items():
            for group, hop in product(range(groups), range(groups)):
                place = (group + groups * at + way * hop) % size
                run.send(step * groups + hop, (place, (place + way) % size, way), sent)
    return run


def torus_exchange(shape, closed) -> Iterator:
    """Bytes on the busiest link of each axis in an all-to-all of chunks of 1, axis after axis, the shortest way."""
    runs = [Run() for _ in shape]
    nodes = list(product(*map(range, shape)))
    for source, target in product(nodes, repeat=2):
        at = list(source)
        for axis, (n, ring) in enumerate(zip(shape, closed, strict=True)):
            distance = target[axis] - at[axis]
            right = distance % n
            if not ring:
                ways = [(1 if distance > 0 else -1, 1, abs(distance))]
            elif 2 * right == n:
                ways = [(1, HALF, right), (-1, HALF, right)]
            else:
                ways = [(1, 1, right) if 2 * right < n else (-1, 1, n - right)]
            row = tuple(place for other, place in enumerate(at) if other != axis)
            for way, share, hops in ways:
                for hop in range(hops):
                    runs[axis].send(0, ((at[axis] + way * hop) % n, way, row), share)
            at[axis] = target[axis]
    return [run.total for run in runs]


def flat_ring(g, nodes):
    """One ring per rail over all devices: bytes of each device's port and NIC, of n*g pieces of 1 in all."""
    n, port, nic = g * nodes, defaultdict(int), defaultdict(int)
    for rail in range(g):
        order = [(node, (rail + 1 + place) % g) for node in range(nodes) for place in range(g)]
        for here, there in zip(order, [*order[1:], order[0]], strict=True):
            (nic if here[0] != there[0] else port)[here] += n - 1
    return max(port.values(), default=0), max(nic.values(), default=0)
