"""Deliberate faults: the order of axes, the choice of a way, and how often how many bytes are sent."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tests.faults.fault import Fault, given, gives
from tests.faults.judges import LLAMA, SP, STAGES, TP
from tpsim.algebra import contract, meetings, moves, planner, reshard, search
from tpsim.cost import collectives, peak
from tpsim.program import op, stages, turnover
from tpsim.program.kinds import ALIKE


def taking(change):
    """A move over the axes of the dims that it cuts, these changed: a settled sum and a permute cut none."""

    def wrong(move):
        axes = [axis for _, minor in change(move.gathered or move.scattered) for axis in minor]
        return replace(move, axes=tuple(axes)) if axes else move

    return gives(wrong)


def major_for_minor(right):
    """The dims that are split further, each with as many of its major axes as it has more minor ones."""
    return lambda fine, coarse: tuple((dim, fine.axes(dim)[: len(more)]) for dim, more in right(fine, coarse))


def giving_up_the_outer(right):
    """Gathers of the outermost axis of a dim."""

    def gathers(now, dst):
        for kind, after in right(now, dst):
            ((dim, _),) = moves.cut(now, after)
            yield kind, now.with_axes(dim, now.axes(dim)[1:])

    return gathers


def paid_again(right):
    """What is yet to be paid from a type on, the way to it included."""

    def least(rough, at):
        done = rough.searches[at]
        done.settled = dict.fromkeys(done.settled, (0, 0, 0))
        return right(rough, at)

    return least


def until_there_is_a_way(right):
    """A search that ends with the first way, whether or not there may be a cheaper one."""

    def until(known, enough, most):
        horizon = right(known, enough, enough)
        while not known.ways and horizon < inf and known.tried <= most:
            horizon = right(known, known.tried, known.tried)
        return horizon

    return until


def counted_once(loop):
    """Counts in which a loop runs no more often than it is traced."""
    return lambda right: lambda program, where, runs: right(program, where, {**runs, loop: program.traced.get(loop)})


def unsplit_by(axis):
    """V in elements where what an axis splits counts as whole."""

    def wrong(right):
        def elements(part, sizes):
            shards = sizes.axes[axis] if axis in part.move.before.sharded_axes else 1
            return right(part, sizes) * shards

        return elements

    return wrong


FAULTS: list[Fault] = [
    # The order of axes
    Fault(
        "the axes of one dim take part the wrong way round",
        moves.move,
        taking(lambda cuts: [(dim, minor[::-1]) for dim, minor in cuts]),
        "verify gather of two axes",
        "values",
    ),
    Fault(
        "the axes of two dims take part the wrong way round",
        moves.move,
        taking(reversed),
        "verify gather of two dims",
        "values",
    ),
    Fault(
        "a scatter lays its axes outside",
        moves._joined,
        lambda right: lambda axes, more, loose: right(more, axes, loose),
        "law: every path",
        "broken",
    ),
    Fault(
        "the axes that come to a dim are taken for its major ones",
        moves.cut,
        major_for_minor,
        "verify exchange beside another axis",
        "values: A[I_XY, J]",
    ),
    Fault(
        "a gather gives up the outer axes",
        reshard._gathers,
        giving_up_the_outer,
        "law: every path",
        "refused",
    ),
    Fault(
        "the permute is forgotten",
        reshard.cheap,
        given(moves=lambda moves: [move for move in moves if move.kind != "permute"]),
        "verify axes in another order",
        "is asked for, but a way ends in",
    ),
    Fault(
        "a permute leaves out its last axis",
        moves.reordered,
        gives(lambda runs: tuple(run[:-1] for run in runs)),
        "verify axes in another order",
        "is no permute over",
    ),
    # The choice of a way
    Fault(
        "a sum is paid in full before a dim takes it up",
        reshard._reductions,
        given(dst=lambda dst: replace(dst, on=((),) * len(dst.dims))),
        "a_sum_that_a_dim_takes_up_is_never_paid_in_full",
        "broken",
    ),
    Fault(
        "the first way found is taken for the cheapest",
        search.Search._offer,
        lambda right: lambda self, at, cost: at not in self._best and right(self, at, cost),
        "no_detour_is_cheaper_than_the_cheapest_way",
        "broken",
    ),
    Fault(
        "what operands have cost is thought to be yet to be paid",
        meetings.Meetings._least,
        paid_again,
        "law: the cheapest way, hastily",
        "broken",
    ),
    Fault(
        "the search for ways ends with the first that is found",
        meetings.Meetings.search,
        until_there_is_a_way,
        "law: the cheapest way, hastily",
        "broken",
    ),
    Fault(
        "shared dims meet on the left operand's axes",
        contract._agreed,
        lambda agreed: lambda ask, dim, left, right: max(agreed(ask, dim, left, right), left.axes(dim), key=len),
        "the_book_moves_what_its_chapter_says",
        "A[I, J_X] . B[J, K]",
    ),
    Fault(
        "the price of a product leaves out its FLOPs",
        planner._plan,
        given(prices=lambda prices: replace(prices, product=lambda _: 0)),
        "law: the price of a product",
        "broken",
    ),
    # How often, and how many bytes
    Fault(
        "layers count once",
        op.Program.times,
        counted_once("layers"),
        f"verify {TP}",
        "bytes of role param, claimed were",
    ),
    Fault(
        "a layer more is folded than a chunk has",
        turnover._in_turn,
        given(layers=lambda layers: [(ops, times + 1) for ops, times in layers]),
        f"verify {STAGES}",
        "bytes at most",
    ),
    Fault(
        "what a stack keeps beside an array is left out of the fold",
        peak.Courses._bytes,
        given(self=lambda courses: replace(courses, keeps=())),
        f"verify {STAGES}",
        "bytes at most",
    ),
    Fault(
        "a row counts the calls of one layer",
        stages.Stages.count,
        gives(lambda often: min(often, 1)),
        f"verify {TP}",
        "planned 1 times, ran 2 times",
    ),
    Fault(
        "microbatches count once",
        op.Program.times,
        counted_once("microbatches"),
        f"verify {LLAMA}",
        "collectives",
    ),
    Fault(
        "what runs once per step counts in every microbatch",
        op.Program.times,
        given(where=lambda where: where.inside("microbatches", 0)),
        f"verify {LLAMA}",
        "all_reduce over data of loss",
    ),
    Fault(
        "the volume of a gather is a shard",
        moves.Move.taking_part,
        lambda right: lambda self, size, axes: size if self.kind == "all_gather" else right(self, size, axes),
        f"verify {LLAMA}",
        "collectives",
    ),
    Fault(
        "other axes' shards are counted too",
        collectives.Portion.elements,
        unsplit_by("data"),
        f"verify {LLAMA}",
        "collectives",
    ),
    Fault(
        "every number has two bytes",
        collectives.Portion.logical_bytes,
        given(self=lambda part: replace(part, output=replace(part.output, dtype="bf16"))),
        f"verify {TP}",
        "collectives",
    ),
    Fault(
        "bits are taken for bytes",
        collectives.Portion.logical_bytes,
        gives(lambda size: 8 * size),
        f"verify {TP}",
        "formulas",
    ),
    Fault(
        "of arrays that travel together the first is sent",
        collectives._merged,
        lambda right: lambda group: replace(right(group), parts=group[0].parts),
        f"verify {SP}",
        "collectives",
    ),
    Fault(
        "gradients of all layers travel together",
        collectives._company,
        given(single=lambda single: replace(single, where=single.where.outside(ALIKE))),
        f"verify {SP}",
        "collectives",
    ),
    Fault(
        "activations travel together",
        collectives._company,
        lambda right: lambda single: (single.op, right(replace(single, op="param"))),
        "an_activation_travels_alone",
        "broken",
    ),
]
