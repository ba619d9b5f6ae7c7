"""What a plan says in three lines: its time and what is lost of it, its memory, and the change that betters it."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from tpsim.answers.trust import idle_chips
from tpsim.quantity.size import total
from tpsim.quantity.units import show
from tpsim.question.requirements import BANDED
from tpsim.report.numbers import counted
from tpsim.report.table import Bar, Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.changes import FieldChange
    from tpsim.answers.mixed import MixedSteps
    from tpsim.answers.plan import PlanResult
    from tpsim.answers.serve import Serve


def verdict_lines(plan: PlanResult) -> Iterator[Line]:
    """The lines ``time``, ``memory`` and, where one is better, ``change``; a demand is broken where it belongs."""
    broken = {limit.name: f"; require {limit.name} {limit.text} is violated" for limit in plan.broken}
    idle = "".join(f"; {text}" for text in idle_chips(plan.question))
    about_memory = broken.pop("memory", "") + broken.pop("peak", "")
    about_band = "".join(broken.pop(end, "") for end in BANDED)
    if serve := plan.serve:
        text = inference_text(plan, serve)
        brief = f"{waits_text(plan, serve)}, {_bound_of_inference(plan, serve)}"
    else:
        text, brief = time_text(plan), f"{show(plan.step.time_s, 'seconds')} a step, bound by {_bound(plan)}"
    yield Line(f"{text}{idle}{''.join(broken.values())}", "time", not broken, brief)
    memory, holds = plan.memory, plan.memory.fits is not False and not about_memory
    yield Line(memory.verdict + about_memory, "memory", holds, memory.brief + about_memory)
    yield from servers_lines(plan)
    if plan.band:
        yield Line(plan.band.text + about_band, "band", not about_band)
    if plan.run:
        yield Line(plan.run.text, "run")
    if plan.change:
        yield Line(change_text(plan.change), "change")


def time_text(plan: PlanResult) -> str:
    """Seconds of a step, what bounds it, what is lost to exposed communication, and the rates that follow."""
    provided = " if it fitted" if plan.memory.fits is False else ""
    rates = f"{plan.step.tokens_per_s:,.0f} tokens/s, MFU {percent(plan.step.mfu)}"
    step_s, bubble_s = plan.step.time_s, plan.step.bubble_s
    waited = f", {percent(bubble_s / step_s)} to the pipeline's bubble{_elsewhere(plan)}" if plan.pipeline else ""
    return f"{show(step_s, 'seconds')} a step{provided}: bound by {_bound(plan)}, {_lost(plan)}{waited}; {rates}"


def _elsewhere(plan: PlanResult) -> str:
    """The rank that waits least, where the one that ends last waits longer: what that one does holds up the others."""
    step_s = plan.step.time_s
    busiest = min(plan.stages or (), key=lambda stage: round(stage.bubble_s / step_s, ALIKE))
    if plan.step.bubble_s - busiest.bubble_s < TOLD * step_s:
        return ""
    bubble, exposed = (percent(seconds / step_s) for seconds in (busiest.bubble_s, busiest.exposed_s))
    return f" (rank {busiest.ranks}: {bubble}, and {exposed} to exposed communication)"


ALIKE = 6
"""Digits of a share of the step in which ranks that wait alike agree."""

TOLD = 0.05
"""The share of a step by which ranks wait unlike each other and are told of apart."""


def inference_text(plan: PlanResult, serve: Serve) -> str:
    """Seconds until the first token and of each that follows, what bounds them, and the rates that follow."""
    rates = f"{rates_text(serve)}; largest batch {serve.largest_batch:,}"
    return f"{waits_text(plan, serve)}: {_bound_of_inference(plan, serve)}, {_lost(plan)}; {rates}"


def servers_lines(plan: PlanResult) -> Iterator[Line]:
    """What servers come to that read prompts and reply to them, all chips counted.

    Of servers that read prompts alone what they hold and send, too, and how many keep up with those that decode.
    """
    if not (serve := plan.serve) or plan.prefill is None:
        return
    if not (servers := serve.servers):
        turns = f"prompts and replies in turn, prompts {percent(serve.prompts_share or 0)} of the time"
        turns = mixed_text(serve.mixed) if serve.mixed else turns
        yield Line(f"{turns}: {serve.requests_per_s:.3g} requests/s; {served_text(serve)}", "servers")
        return
    at_once, held = plan.prefill.question.workload.global_batch, servers.prompt_memory
    moved = f"of {show(float(servers.transfer_bytes), 'bytes')}"
    move = f"a cache {moved} moves" if at_once == 1 else f"{at_once:,} caches {moved} each move"
    full = f"the fullest port is busy {percent(servers.port_share)} of its time"
    sent = f"; {move} in {show(servers.transfer_s, 'seconds')}, {full}"
    yield Line(held.verdict + sent, "prompts", held.fits is not False, f"servers of prompts: {held.brief}")
    both = f"{servers.prompt_servers:,} of prompts and {servers.decode_servers:,} that decode"
    near = f"{servers.ratio:.3g} of prompts for each that decodes; {both} lose {percent(servers.lost_share)}"
    yield Line(f"{near}; {served_text(serve)}", "servers")


def mixed_text(mixed: MixedSteps) -> str:
    """Which steps read pieces of prompts, of how many tokens, and how long these take."""
    read = f"{mixed.reading:.3g} x " if mixed.reading > 1 else ""
    pieces = f"pieces of up to {read}{mixed.piece_tokens:,.4g} tokens of prompts in {percent(mixed.share)} of steps"
    longest = f", at most {show(mixed.longest_s, 'seconds')}" if mixed.longest_s > mixed.step_s else ""
    return f"{pieces}, {show(mixed.step_s, 'seconds')} beside decoding of {show(mixed.decode_s, 'seconds')}{longest}"


def served_text(serve: Serve) -> str:
    """New tokens per second and chip, of all chips that read prompts or decode."""
    return f"{serve.served_tokens_per_s_chip:,.0f} tokens/s per chip of all"


def rates_text(serve: Serve) -> str:
    """Tokens per second of a user, where there are any, and of a chip."""
    user = "" if serve.tokens_per_s_user is None else f"{serve.tokens_per_s_user:,.1f} tokens/s per user, "
    return f"{user}{serve.tokens_per_s_chip:,.0f} {'' if user else 'tokens/s '}per chip"


def waits_text(plan: PlanResult, serve: Serve) -> str:
    """Seconds until the first token, and of a step of decoding, or with drafts of a token."""
    first = "" if serve.ttft_s is None else f"first token after {show(serve.ttft_s, 'seconds')}"
    per = f"token with {counted(serve.work.drafted, 'draft')}" if serve.work.drafted else "step of decoding"
    per = "token" if serve.mixed else per
    step = "" if serve.tpot_s is None else f"{show(serve.tpot_s, 'seconds')} a {per}"
    return ", then ".join(filter(None, (first, step))) + (" if it fitted" if _outgrown(plan) else "")


def _outgrown(plan: PlanResult) -> bool:
    """True if a chip of any server surely holds too much."""
    servers = plan.serve and plan.serve.servers
    return plan.memory.fits is False or bool(servers and servers.prompt_memory.fits is False)


def _bound_of_inference(plan: PlanResult, serve: Serve) -> str:
    """What of compute sets the pace, with its share; else what does; of a step that verifies drafts."""
    what = "verification bound by" if serve.work.drafted else "bound by"
    what = "decoding alone bound by" if serve.mixed else what
    if plan.step.bound_by != "compute":
        return f"{what} {IN_TURN.get(plan.step.bound_by, _bound(plan))}"
    by_bytes, paused = serve.bytes_bound_share, serve.pauses_share
    shares = {"reading weights and cache": by_bytes, "matrix products": 1 - by_bytes - paused, PAUSES: paused}
    bound, compute = max(shares, key=lambda name: shares[name]), plan.compute.time_s / plan.step.time_s
    beside = f", {PAUSES} {percent(paused * compute)}" if bound != PAUSES and paused * compute > TOLD else ""
    return f"{what} {bound} ({percent(shares[bound] * compute)}{beside})"


IN_TURN = {"bubble": "stages that work one after the other"}
"""What a step of inference can be bound by otherwise than one of training."""

PAUSES = "pauses between kernels"
"""What of compute no faster memory and no faster matrix unit shortens."""

WAITS = {"bubble": "the pipeline's bubble", "host": "the host, which launches kernels"}
"""What a step can be bound by that is no work of its chips."""


def _bound(plan: PlanResult) -> str:
    """Compute with its share; communication, which may set the pace though most of it runs beside compute."""
    if plan.step.bound_by == "compute":
        return f"compute ({percent(plan.step.compute_s / plan.step.time_s)})"
    if plan.step.bound_by in WAITS:
        return WAITS[plan.step.bound_by]
    longer = plan.step.outlasting
    return f"communication ({longer} outlasts the compute beside it)" if longer else "communication"


def _lost(plan: PlanResult) -> str:
    """The share of the step that exposed communication takes, and the collectives that make most of it."""
    shares = {part.collective: part.share for part in plan.step.lost}
    if not shares:
        return "nothing lost to communication"
    whole = total(shares.values())
    few = sum(2 * before < whole for before in accumulate(shares.values(), initial=0))
    names = [f"{name} ({percent(share)})" for name, share in list(shares.items())[:few]]
    if len(shares) == 1:
        return f"{percent(whole)} lost to exposed {next(iter(shares))}"
    *others, last = names
    mostly = f"{', '.join(others)} and {last}" if others else last
    return f"{percent(whole)} lost to exposed communication, mostly {mostly}"


def change_text(change: FieldChange) -> str:
    """The field, the step with it, and what it does to memory; that first where memory is what is wanting."""
    old, new = change.old.memory, change.new.memory
    full, grown = old.room_bytes < 0, change.old.tokens != change.new.tokens
    batch, of = (f"{change.new.question.workload.global_batch:,} sequences", " per token") if grown else ("", "")
    step = f"{show(change.time_s, 'seconds')} a {per_what(change.new)} ({signed(change.relative)}{of})"
    peak = "" if old.peak_bytes == new.peak_bytes else f"peak {show(float(new.peak_bytes), 'bytes')}"
    parts = (batch, peak, step) if full else (batch, step, peak)
    return f"{change.words}: {', '.join(filter(None, parts))}"


def per_what(plan: PlanResult) -> str:
    """What seconds of its pace are of: a step, or where it verifies drafts, or others read prompts, a token."""
    work = plan.question.inference
    return "token" if work and (work.drafted or work.budget) else "step"


SMALL = 0.0002
"""The share of a step below which nobody sees a part of it in a bar."""


def percent(share: float) -> str:
    """A share in percent, three digits, from 1,000 % on all, and no exponent.

    >>> percent(0.27597), percent(9.9997), percent(28.33)
    ('27.6 %', '1,000 %', '2,833 %')
    """
    return f"{100 * share:,.0f} %" if abs(share) >= TENFOLD else f"{100 * share:.3g} %"


def bars(plan: PlanResult) -> Iterator[Bar]:
    """The step, and the peak of memory beside what the chip has; parts that nobody would see are left out."""
    step, memory = plan.step, plan.memory
    exposed = sorted(((row.exposed_s, axis) for axis, row in plan.totals["by_axis"].items()), reverse=True)
    parts = {
        "compute": step.compute_s,
        **{f"exposed over {axis}": seconds for seconds, axis in exposed[:MOST_AXES]},
        "exposed over other axes": sum(seconds for seconds, _ in exposed[MOST_AXES:]),
        "bubble": step.bubble_s,
        **step.waits,
    }
    seen = {name: size for name, size in parts.items() if size > SMALL * step.time_s}
    shares = ((f"{name} {percent(float(size / step.time_s))}", float(size)) for name, size in seen.items())
    yield Bar("step  ", tuple(shares))
    bytes_ = {**memory.parts, "overheads": memory.overhead_bytes}
    sizes = tuple((f"{name} {show(float(size), 'bytes')}", float(size)) for name, size in bytes_.items() if size)
    capacity = float(memory.capacity_bytes)
    yield Bar("memory", sizes, (f"capacity {show(capacity, 'bytes')}", capacity))


MOST_AXES = 3
"""Axes whose exposed seconds have a part of the bar of their own."""


def signed(share: float) -> str:
    """A change in percent, with its sign.

    >>> signed(0.27597), signed(9.9997), signed(-28.33)
    ('+27.6 %', '+1,000 %', '-2,833 %')
    """
    return f"{'+' if share >= 0 else ''}{percent(share)}"


TENFOLD = 9.995
"""From this share on percents have no decimals, and no exponent: as three digits it is 1,000 %."""
