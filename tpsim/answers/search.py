"""The verb `search`: the best layout of what a scenario leaves open, and why the next ones are worse."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, get_args

from tpsim.answers.easing import Again
from tpsim.answers.layout_row import Demanded, Refused, Row
from tpsim.answers.planned import By, Planned
from tpsim.answers.ranking import Ranked, Ranking, measurable, measured, refuse_held, spare_bytes, weigh
from tpsim.answers.search_verdict import lines_of
from tpsim.answers.sensitivity import Answered, Moves, answered, moves
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.served import planned_alone
from tpsim.layouts.space import spaces
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.progress import told_with, unwatched
from tpsim.question.divisibility import legal_tp, next_multiple
from tpsim.question.edits import flag_words
from tpsim.question.memo import Memo
from tpsim.report.answer import Answer, Assumption
from tpsim.report.record import Count, Number, Of, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpsim.layouts.candidates import Evaluation
    from tpsim.layouts.space import Space
    from tpsim.quantity.progress import Progress
    from tpsim.quantity.spec import Document
    from tpsim.question.edits import Flags
    from tpsim.question.question import Question
    from tpsim.report.picture import Picture
    from tpsim.report.table import Line

TOP, PLANS = 10, 200
"""Layouts that are listed, and those that are planned at most to find them."""


@checked
def search(
    scenario: str | Path | Document | Mapping[str, Any] | None = None,
    *,
    overrides: Sequence[str] = (),
    vary: Sequence[str] = (),
    by: By = "step",
    top: int = TOP,
    plans: int = PLANS,
    pareto: str = "",
    sensitivity: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
    memo: Memo | None = None,
    **flags: Unpack[Flags],
) -> SearchResult:
    """Rank the legal layouts of what a scenario leaves open.

    Searched are mesh, ZeRO, sequence parallelism, recompute, schedule, chunks, microbatches, of inference mesh,
    sequence parallelism and the cache's layout, each unless the scenario, a flag or an override states it; `chips`
    frees mesh, placement, layout and pipeline.

    scenario   a file, a library name, its content as a mapping, or None for flags alone
    overrides  ``path=value`` each, as ``--set`` takes them: what they state is held
    vary       ``path=value,value`` each, as YAML: only these, of any field; ``path`` alone: all of a part of a layout
    by         step, tokens_per_s, tokens_per_s_chip, served_tokens_per_s_chip (of replies, prompts and all chips
               counted), memory (the peak), or money (of a token, where a chip hour has a price)
    top        how many are listed
    plans      how many are planned at most; where that ends a search, the answer says how near it came; it ends none of
               inference, of which bounds are all but plans
    pareto     ``step,memory``: also the layouts to which no other is both faster and smaller
    sensitivity  True: also how the best step answers to a better part of the machine; that searches once per part
    workers   processes that share the programs, forked where the platform can; the answer is the same for any number
    progress  is told what is going on, many times: things done, of how many, and what they are
    memo      what other searches of the same request have read and lowered
    flags      the command line's options by name: chips=256, batch=512; see `tpsim.question.edits`
    Raises InputError for everything that the scenario says wrongly.
    """
    refuse_ranking(by, top, plans)
    if workers < 1:
        raise InputError.one("bad-value", f"{workers} workers search nothing", remedy="write --workers 2")
    memo, tell = memo or Memo(), progress or unwatched
    measures = {"by": by, **({"pareto": measured(pareto)} if pareto else {})}
    several = spaces(scenario, flags=flags, overrides=overrides, vary=vary, memo=memo)
    questions = [space.question(None, memo) for space in several]
    for flag, measure in measures.items():
        measurable(flag, measure, questions)
    for question in questions:
        refuse_held(question, memo)
    evaluation = evaluate(several, memo, weigh, workers, tell)
    spare = [(space, spare_bytes(question)) for space, question in zip(several, questions, strict=True)]
    most = max(plans, evaluation.fitting) if questions[0].inference else plans
    ranking = Ranking(evaluation, memo, most, spare, tell)
    best = ranking.best(by, top)
    close = sum(int((family.fitting & ~ranking.surely(family)).sum()) for family in evaluation.families)
    again = partial(search, scenario, overrides=overrides, by=by, top=1, plans=plans, workers=workers, memo=memo)
    otherwise = partial(again, progress=partial(told_with, tell, "to find what makes one do"))
    told = tuple(asked_again(scenario, flags, overrides, vary, plans)), Again(otherwise, vary, flags, overrides)
    result = SearchResult(by, several, questions, ranking, best, close, *told)
    if pareto:
        result = replace(result, front=ranking.front(measures["pareto"]))
    if not sensitivity:
        return result
    better = list(answered(result, most, memo, workers, tell))
    return replace(result, sensitivity=better, constants=moves(result, memo, tell))


def asked_again(
    scenario: Any, flags: Mapping[str, Any], overrides: Sequence[str], vary: Sequence[str], plans: int
) -> Iterator[str]:
    """The words of the command line that ask for a search again, but for what it ranks by."""
    if isinstance(scenario, str | Path):
        yield str(scenario)
    yield from flag_words(flags)
    yield from (
        word for name, texts in (("--set", overrides), ("--vary", vary)) for text in texts for word in (name, text)
    )
    if plans != PLANS:
        yield from ("--plans", str(plans))


def save_best(words: Sequence[str], by: str) -> str:
    """The command that writes the best layout of what is asked for as a scenario."""
    ranked = [] if by == "step" else ["--by", by]
    return shlex.join(["tpsim", "search", *words, *ranked, "--top", "1", "--save", "best.yaml"])


def refuse_ranking(by: str, top: int, plans: int) -> None:
    """Refuse a measure that there is not, and to list or to plan nothing. Raises InputError."""
    if by not in get_args(By):
        remedy = "of inference, step is TPOT, and of prompts alone TTFT" if by in ("tpot", "ttft") else ""
        raise unknown(by, "measure", get_args(By), remedy=remedy)
    if top < 1 or plans < 1:
        remedy = f"write --{'top' if top < 1 else 'plans'} 1"
        raise InputError.one("bad-value", "a search lists and plans at least one layout", remedy=remedy)


def _of_best(part: str, nothing: Any) -> Callable[[SearchResult], Any]:
    """A part of the best plan."""
    return lambda result: getattr(result.ranked.best[0].plan, part) if result.ranked.best else nothing


@dataclass(frozen=True)
class SearchResult(Answer):
    """The best layouts of a space. Bytes are of one chip, seconds of one step.

    questions    of each space, its layouts left open
    ranking      all layouts
    ranked       the best plans
    close        how many of those that fit are too close to say
    front        where they are asked for, those that are not surpassed in speed, or money, and memory together
    asked        the words of the command line that ask for it again
    again        how to ask something else of it
    sensitivity  where it is asked for: how the best step answers to each part of the machine, made better
    constants    then, too: how it answers to each figure, of those that make a difference, in its layout
    """

    schema = "tpsim.search/1"
    table = "rows"
    told: ClassVar[tuple[str, ...]] = (
        *("verdict", "by", "considered", "covered", "legal", "fitting", "close", "plans", "violating", "gap"),
        *("complete", "searched", "held", "refused", "best?", "require?", "rows", "pareto_complete?", "pareto?"),
        *("sensitivity?", "constants?"),
    )

    by: By
    spaces: Sequence[Space]
    questions: Sequence[Question]
    ranking: Ranking
    ranked: Ranked
    close: Count
    asked: tuple[str, ...]
    again: Again
    front: Ranked | None = None
    sensitivity: list[Answered] | None = None
    constants: list[Moves] | None = None

    considered = Of[Count]("evaluation.considered", "layouts looked at")
    legal = Of[Count]("evaluation.legal", "those that `plan` does not refuse")
    covered = Of[Count]("evaluation.covered", "not looked at: they split sequences that more data shards can take")
    held = Of[Mapping[str, Any]](lambda result: result.spaces[0].held, "what was held, as it is stated")
    plans = Of[Count](
        lambda result: result.fitting if any(map(planned_alone, result.questions)) else result.ranked.made,
        "layouts that were planned to know the best",
    )
    complete = Of[bool]("ranked.complete", "true if no layout that is not listed can be better than one that is")
    pareto_complete = Of[bool | None](
        lambda result: result.front and result.front.complete,
        "where they are asked for: True if all of them are listed, and nothing else",
    )
    violating = Of[Count]("ranked.violating", "layouts that fit and are known to violate what the scenario requires")

    name = Of[str](lambda result: result.questions[0].name, "of the scenario; without one of the model")

    def __getstate__(self) -> dict[str, Any]:
        """With all that it tells, worked out: where it is sent to no layout is looked at nearer or planned."""
        _ = self.smallest, self.lines
        return self.__dict__

    @property
    def to_pad(self) -> str:
        """The command that looks for layouts again with a vocabulary that divides; "" if it does."""
        return shlex.join(["tpsim", "search", *self.asked, "--set", self.padding]) if self.padding else ""

    @property
    def to_save(self) -> str:
        """The command that writes the best layout as a scenario."""
        return save_best(self.asked, self.by)

    @property
    def to_ease(self) -> str:
        """The command that writes the best layout with the change that makes one; "" if none is known."""
        return self.eased[1].to_save if self.eased and self.eased[1].best else ""

    files = Of[Sequence[tuple[str, str]]](_of_best("files", ()), "path and sha256 of every file that was read")
    resolved = Of[Mapping[str, Any]](_of_best("resolved", {}), "what the best layout came to")
    assumptions = Of[Sequence[Assumption]](_of_best("assumptions", ()), "what the plan of the best layout rests on")
    not_modelled = Of[Sequence[str]](_of_best("not_modelled", ()), "what that plan leaves out")

    @property
    def evaluation(self) -> Evaluation:
        """All layouts, as far as they are known without a plan."""
        return self.ranking.evaluation

    @cached_property
    def smallest(self) -> Planned | None:
        """Where no layout fits: the plan of the one that holds least."""
        return self.ranking.smallest()

    @cached_property
    def sure(self) -> Ranked | None:
        """Where it is too close to say whether the best fits: the best that surely does.

        None does of largest batches, which fill a chip to the last byte.
        """
        doubted = self.ranked.best and self.ranked.best[0].outcome.fits is None
        filled = any(question.inference and question.inference.fills for question in self.questions)
        return self.ranking.best(self.by, 1, sure=True) if doubted and not filled else None

    @cached_property
    def fitting(self) -> Count:
        """Legal ones whose peak the memory of a chip holds."""
        return self.evaluation.fitting

    @property
    def gap(self) -> Number:
        """How far below the best a layout that was not planned may be, as a share; 0 if none can be."""
        if not self.ranked.best or self.complete:
            return 0
        return max(0.0, 1 - self.ranked.open_at / self.ranked.best[0].value(self.by))

    @property
    def searched(self) -> list[str]:
        """What was searched."""
        names = dict.fromkeys([*self.spaces[0].only, *self.spaces[0].varied])
        none = {"ep", "placement"} if not any(question.model.experts for question in self.questions) else set()
        return [name for name in names if name not in {*self.held, *none}]

    @property
    def refused(self) -> list[Refused]:
        """The layouts that are not legal, by reason."""
        return [Refused(str(why), many, why.message) for why, many in self.evaluation.refused.most_common()]

    @property
    def padding(self) -> str:
        """The override by which the vocabulary splits over every tp that heads and chips allow; "" if it does."""
        model, chips = self.questions[0].model, self.spaces[0].chips or self.questions[0].mesh.devices
        tp = lcm(*(tp for tp in legal_tp(model) if not chips % tp))
        refused = any(refusal.reason == "vocabulary-not-divisible" for refusal in self.refused)
        padded = next_multiple(model.vocab, tp)
        return f"model.vocab_padded={padded}" if refused and padded != model.vocab_padded else ""

    @cached_property
    def rows(self) -> list[Row]:
        """The best layouts, the best first."""
        return _listed(self.ranked)

    @cached_property
    def pareto(self) -> list[Row] | None:
        """Where they are asked for: layouts to which no other is better and holds less."""
        return None if self.front is None else _listed(self.front)

    @property
    def best(self) -> Row | None:
        """The best layout; left out if nothing fits."""
        return self.rows[0] if self.rows else None

    @property
    def ok(self) -> bool:
        """True if there is a layout that fits and meets every demand, and the best is as it is required to be."""
        return bool(self.ranked.best) and all(demand.ok for demand in self.require or ())

    @property
    def require(self) -> list[Demanded] | None:
        """What the scenario requires of the best layout; left out where that is nothing, or where there is none."""
        required = self.questions[0].stated.file.require.best
        if required is None or self.best is None:
            return None
        return [Demanded(name, value, getattr(self.best, name)) for name, value in required.stated.items()]

    columns = Of[Sequence[str]](
        lambda _: tuple(name for name, always in names(Row).items() if always), "what stands above no rows"
    )

    def records(self) -> Sequence[Mapping[str, Any]]:
        """The rows; where more was asked for, all tables in one, which `table` tells apart."""
        tables = {"pareto": self.pareto, "sensitivity": self.sensitivity, "constants": self.constants}
        if not any(tables.values()):
            return self.rows
        return [{"table": name, **row} for name, rows in {"best": self.rows, **tables}.items() for row in rows or ()]

    @cached_property
    def eased(self) -> tuple[str, SearchResult] | None:
        """Where there is no layout to take: what asked otherwise makes one, in words, and what is found then."""
        return self.again.eased(self)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The answer in lines: the best layout, how it is known, what was held."""
        return tuple(lines_of(self))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Seconds of a step over bytes at its peak."""
        from tpsim.answers.pictures import of_search

        return tuple(of_search(self))


def _listed(ranked: Ranked) -> list[Row]:
    """Plans as rows, each beside the first."""
    return [Row(n, planned, ranked.best[0], ranked.by) for n, planned in enumerate(ranked.best, 1)]
