"""Chunked prefill: how many sequences of a step read pieces of prompts, how many decode, and each asked alone.

A sequence begins as one ends, so that all slots of a batch are taken. Steps have a token of every sequence that
decodes, and in what room is left a piece of a prompt, one prompt after another (Agrawal et al. 2024, Sarathi-Serve,
algorithm 3; vLLM, v1/core/sched/scheduler.py).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.quantity.errors import InputError
from tpsim.question.question import Inference, unit_of_part, without_graph
from tpsim.question.serving_file import ServeFields

if TYPE_CHECKING:
    from tpsim.question.question import Question
    from tpsim.question.stated import Stated

FIELD = ("workload", "step_tokens")
"""Where the tokens of such a step are stated."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """What steps have in the mean, of chips that have every sequence together.

    slots   sequences that are there at once
    tokens  of a step at most
    prompt  tokens of a prompt that are to be read
    steps   of decoding behind it
    cached  tokens of the prompt that are in the cache already
    """

    slots: float
    tokens: float
    prompt: int
    steps: int
    cached: int = 0

    @property
    def room(self) -> float:
        """Tokens of prompts that a step has room for, beside those of all others."""
        return max(1, self.tokens - self.slots + 1)

    @property
    def pieces(self) -> float:
        """Steps that read a prompt; where the next one would wait for it, that has what its last piece leaves."""
        whole = ceil(self.prompt / self.room)
        in_turn = self.steps / (self.slots - 1) if self.slots > 1 else whole
        return max(1, min(whole, max(self.prompt / self.room, in_turn)))

    @property
    def begun(self) -> float:
        """Sequences that begin in a step, as many as end: each has its slot for all of its steps."""
        return self.slots / (self.pieces + self.steps)

    @property
    def due(self) -> float:
        """Tokens that a step has in the mean: more than it may have where some slots would stay empty."""
        return self.begun * (self.prompt + self.steps)

    @property
    def share(self) -> float:
        """Of all steps, those that read prompts."""
        return min(1, self.begun * self.pieces)

    @property
    def reading(self) -> float:
        """Sequences whose prompts such a step reads, in the mean: one where it takes several steps to read it."""
        return max(1, self.begun) if self.pieces == 1 else 1

    @property
    def reads(self) -> tuple[Reads, ...]:
        """The steps that read prompts, by how much: seconds are no straight line, so that the mean of all has none."""
        return tuple(
            reads._replace(attended=reads.attended + self.cached, most=reads.most + self.cached)
            for reads in (self._several if self.reading > 1 else self._one)
            if reads.share
        )

    @property
    def _several(self) -> tuple[Reads, ...]:
        """Where all of them read several prompts: one more or less, or of one more as much as there is room for."""
        few, many = floor(self.begun), floor(self.begun) + 1
        each = min(self.prompt, (self.tokens - self.slots + many) / many)
        share = (self.begun - few) * self.prompt / (many * each - few * self.prompt)
        return Reads(1 - share, few, *[self.prompt] * 3), Reads(share, many, each, self.prompt, self.prompt)

    @property
    def _one(self) -> tuple[Reads, ...]:
        """Where they read one: full steps, and steps with the rest of a prompt.

        Where the next prompt takes of what the last piece leaves there are more full steps, and as many tokens.
        """
        last = self.prompt - (ceil(self.prompt / self.room) - 1) * self.room
        if last == self.room:
            return (Reads(self.share, 1, last, (last + self.prompt) / 2, self.prompt),)
        full, behind = (self.prompt - self.pieces * last) / (self.room - last), self.prompt - last
        rest = Reads((self.pieces - full) * self.begun, 1, last, self.prompt, self.prompt)
        return Reads(full * self.begun, 1, self.room, (self.room + behind) / 2, behind), rest


class Reads(NamedTuple):
    """Steps that read as much of prompts.

    share     of all steps
    reading   sequences whose prompts one reads
    tokens    of each
    attended, most  tokens that these attend to, in the mean and at most
    """

    share: float
    reading: int
    tokens: float
    attended: float
    most: float


class Kinds(NamedTuple):
    """A step that reads prompts beside decoding, as questions.

    whole    every sequence, each with as many new tokens as all have in the mean
    pieces   the pieces of prompts alone, behind what is read already
    replies  what decodes beside them alone; None where nothing does
    """

    whole: Question
    pieces: Question
    replies: Question | None


def mixed_of(question: Question) -> Mixed:
    """What steps have of sequences that chips share, where they read prompts beside decoding."""
    each, groups = _of_shard(question), unit_of_part(question) / _shards(question)
    return replace(each, slots=each.slots / groups, tokens=each.tokens / groups)


def _shards(question: Question) -> int:
    """Data shards, each an engine with slots and steps of its own."""
    return question.mesh.size(*question.layout.roles["dp"])


def _of_shard(question: Question) -> Mixed:
    """What steps of a data shard have, whose chips may each have sequences of their own."""
    work, fields = question.workload, question.stated.file.workload
    if not isinstance(work, Inference) or work.budget is None or not isinstance(fields, ServeFields):
        raise TypeError(work)
    return Mixed(
        work.global_batch / _shards(question), work.budget, fields.prompt - fields.behind, fields.steps, fields.behind
    )


def kinds_of(question: Question, mixed: Mixed, reads: Reads) -> Kinds:
    """Such a step. Collectives are launched as those of a prompt: no graph has steps of any size."""
    work: Any = question.workload
    alone, groups, decoding = without_graph(question), unit_of_part(question), mixed.slots - reads.reading
    tokens = (decoding + reads.reading * reads.tokens) / mixed.slots
    replies = replace(work, global_batch=groups * decoding, budget=None)
    return Kinds(
        _reading(alone, mixed, sequences=work.global_batch, tokens=tokens, attended=reads.attended),
        _reading(alone, mixed, sequences=groups * reads.reading, tokens=reads.tokens, attended=reads.attended),
        replace(alone, workload=replies) if decoding else None,
    )


def fullest_step(question: Question) -> Question:
    """A step of as many tokens as there may be, which reads the ends of prompts, as if all of them were of prompts."""
    mixed, question = mixed_of(question), without_graph(question)
    sequences, tokens = unit_of_part(question) * mixed.reading, mixed.tokens / mixed.reading
    return _reading(question, mixed, sequences=sequences, tokens=tokens, attended=mixed.prompt + mixed.cached)


def _reading(question: Question, mixed: Mixed, *, sequences: Any, tokens: Any, attended: Any) -> Question:
    """A step of a prompt, of so many sequences with so many new tokens each."""
    work: Any = question.workload
    serving = replace(work.serving, phase="prefill", cached=mixed.pieces > 1 or mixed.cached > 0)
    read = {"kind": "prefill", "steps": 1, "serving": serving, "budget": None, "seq": tokens, "attended": attended}
    return replace(question, workload=replace(work, global_batch=sequences, **read))


def refuse_empty_slots(question: Question) -> None:
    """Refuse steps of so few tokens that some slots of the batch would stay empty. Raises InputError."""
    each = _of_shard(question)
    if each.due <= each.tokens:
        return
    enough = each.slots * (each.prompt + each.steps) / (1 + each.steps)
    message = (
        f"steps of {each.tokens} tokens do not keep up with {each.slots:g} sequences of a data shard: "
        f"prompts of {each.prompt} tokens and replies of {each.steps + 1} would leave slots empty"
    )
    remedy = f"write at least {ceil(enough)}, or a batch of at most {most_slots(question)}"
    raise InputError.one("too-few-step-tokens", message, question.stated.at(*FIELD), remedy)


def most_slots(question: Question) -> int:
    """The largest batch that steps of so many tokens keep up with."""
    each = _of_shard(question)
    tokens = int(each.tokens)
    most = bisect_right(range(1, tokens + 1), tokens, key=lambda slots: ceil(replace(each, slots=slots).due))
    return most * _shards(question)


def refuse_unmixed(fields: ServeFields, read: Stated) -> None:
    """Refuse what steps that read prompts beside decoding are not planned with yet. Raises InputError."""
    name = ".".join(FIELD)
    if not fields.steps:
        message = "a reply of one token is the prompt's own: no step has anything to decode"
        raise InputError.one("nothing-to-decode", message, read.at("workload", "output"), f"leave {name} out")
    others = {
        ("workload", "speculation"): bool(fields.speculation and fields.speculation.tokens),
        ("workload", "microbatches"): (fields.microbatches or 1) > 1,
        ("prefill",): getattr(read.file, "prefill", None) is not None,
        ("assume", "kernel_launch"): bool(read.file.assume.kernel_launch),
        ("planner",): read.file.planner == "cheapest",
    }
    for keys, stated in others.items():
        if stated:
            message = f"{'.'.join(keys)} beside {name} is not supported yet: steps that read prompts know nothing of it"
            raise InputError.one("not-supported-yet", message, read.at(*FIELD), f"leave one of both out: {name}")
