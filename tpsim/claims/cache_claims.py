"""What a cache is for: decoding token after token gives what reading all of them as a prompt gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from tpsim.algebra.mesh import Mesh
from tpsim.claims.checks import ROUNDING, Check, below
from tpsim.program.dims import ROWS
from tpsim.program.layout import TOKENS_READ, Layout, layout
from tpsim.question.memo import program_of
from tpsim.question.routing import routed
from tpsim.reference.compare import TOLERANCE
from tpsim.reference.execute import execute
from tpsim.reference.run import Run, leaves
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from tpsim.program.op import Array
    from tpsim.question.question import Inference, Question
    from tpsim.reference.blocks import Block

STEPS = 2
"""Steps of decoding, one behind the other: the second one reads what the first one has written."""


def cache_check(question: Question, work: Inference) -> Check:
    """Decoding behind a prompt on the question's devices against prompts that have those tokens, too, on one device."""
    gaps = list(_Replies(question, work).gaps())
    worst = max(gaps)
    seen = f"a prompt read, then {STEPS} steps of {counted(work.seq, 'token')} decoded: what is sampled from, and the "
    seen += f"caches, as of prompts with these tokens on one device, relative differences {below(worst, ROUNDING)}"
    wrong = [
        f"step {at} differs by {gap:.1e} from a prompt with its tokens"
        for at, gap in enumerate(gaps)
        if not gap <= TOLERANCE
    ]
    return Check("cache", seen, 1, wrong)


@dataclass(frozen=True)
class _Replies:
    """Runs of one question at several lengths, which have the weights and the tokens in common."""

    question: Question
    work: Inference

    @property
    def prompt(self) -> int:
        """Tokens that are read before any is decoded: as many as the layout can split."""
        return lcm(int(self.work.attended), self.work.seq)

    @property
    def room(self) -> int:
        """Tokens that a cache has room for: all of them, in whole shares."""
        whole, split = self.prompt + STEPS * self.work.seq, int(self.work.attended)
        return -(-whole // split) * split

    def gaps(self) -> Iterator[float]:
        """Of each step, how far what it hands out lies from what a prompt does."""
        read = self._run(self._read(self.prompt), {}, {"s": self.prompt, "t": self.prompt}, None)
        caches = {name: self._roomy(read.value(x), x.dims[1]) for name, x in self._caches(read).items()}
        for step in range(STEPS):
            past = self.prompt + step * self.work.seq
            tokens = past + self.work.seq
            decoded = self._run(self.question, caches, {"s": self.work.seq, "t": self.room, "past": past}, None)
            caches = {name: decoded.value(array) for name, array in self._caches(decoded).items()}
            whole = self._run(self._read(tokens), {}, {"s": tokens, "t": tokens}, layout())
            known = {name: whole.value(array) for name, array in self._caches(whole).items()}
            yield max(
                _gap(_sampled(decoded)[:, -1], _sampled(whole)),
                *(_gap(caches[name][:, : known[name].shape[1]], known[name]) for name in known),
            )

    def _read(self, tokens: int) -> Question:
        """The question of a prompt of so many tokens."""
        serving = replace(self.work.serving, phase="prefill", cached=False)
        work = replace(self.work, kind="prefill", seq=tokens, attended=tokens, longest=tokens, serving=serving)
        return replace(self.question, workload=work)

    def _run(
        self, question: Question, caches: Mapping[str, Block], tokens: Mapping[str, int], laid: Layout | None
    ) -> Run:
        dims, _ = routed(question, self.work.dims(question.model), question.mesh.axes)
        sizes = {**self.work.read(dims, self.room), **tokens, "p": self.room, "m": 1}
        sizes |= {dim: sizes["s"] for dim in ("lt",) if dim in sizes}
        sizes |= {dim: sizes["b"] * sizes["s"] for dim in ROWS if dim in sizes}  # for all tokens that choose alike
        past = sizes.get("past", 0)
        drawn = leaves(sizes)("tokens", (sizes["b"], self.room))[:, past : past + sizes["s"]]
        program = program_of(question, laid, layers=(question.stages.stack,))
        mesh = question.mesh if laid is None else Mesh({})
        return execute(program, mesh, sizes, leaves(sizes, {"tokens.0": drawn, **caches}))

    def _roomy(self, cache: Block, tokens: str) -> Block:
        """A cache with room behind its tokens; nothing may read what stands there. One that does not grow stays."""
        if tokens != TOKENS_READ:
            return cache
        others = [(0, 0)] * (cache.ndim - 2)
        return np.pad(cache, [(0, 0), (0, self.room - self.prompt), *others], constant_values=NOTHING)

    @staticmethod
    def _caches(run: Run) -> dict[str, Array]:
        """The caches behind a step, by the labels of those before it."""
        results = {name: array for name, array in run.program.results.items() if name != "sampled"}
        return {f"{layer}.{cache}.{kind}": x for name, x in results.items() for cache, layer, kind in [name.split(".")]}


NOTHING = 1e3
"""What stands where no token has been written: larger than any key, so that reading it is seen."""


def _sampled(run: Run) -> Block:
    return run.value(run.program.results["sampled"])


def _gap(block: Block, due: Block) -> float:
    """The largest difference, relative to the largest value; none where there is nothing to differ."""
    if not due.size:
        return 0.0
    return float(np.max(np.abs(block - due)) / np.max(np.abs(due)))
