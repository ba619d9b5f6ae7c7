"""The page of an explanation: formula, values, reasons, sources and checks of each number."""

from __future__ import annotations

import shlex
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tpsim.fabric.wires import ONE_LINK
from tpsim.report.table import Column, Page, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.derivation import Derivation
    from tpsim.answers.explain import ExplainListResult, ExplainResult

COLUMNS = (Column("what", "number"), Column("label", ""), Column("text", ""))
SYMBOLS = (Column("symbol", "symbol"), Column("value", "value"), Column("meaning", "meaning"))


def page(result: ExplainResult, *, verbose: bool, latex: bool = False) -> Page:
    """`result` as a page: a block of lines per number, then the symbols.

    latex  True: formulas in LaTeX
    """
    lines = [line for derivation in result.derivations for line in _lines(derivation, verbose=verbose, latex=latex)]
    symbols = list(_symbols(result))
    tables = [Table(COLUMNS, lines, group="what")]
    tables += [Table(SYMBOLS, symbols)] if symbols else []
    title = result.name if result.scenario is None else f"{result.name} in {result.scenario}"
    return Page(result, title=title, tables=tuple(tables), next_command=_next(result))


def _lines(derivation: Derivation, *, verbose: bool, latex: bool) -> Iterator[dict[str, Any]]:
    formula = (derivation.latex if latex else derivation.formula) or ""
    texts = [("formula", formula), ("value", _value(derivation, verbose=verbose))]
    texts += [("because", text) for text in derivation.because]
    texts += [("source", text) for text in derivation.sources]
    texts += [("checked by", ", ".join(derivation.checks))]
    seen = ""
    for label, text in texts:
        if text:
            yield {"what": derivation.what, "label": "" if label == seen else label, "text": text}
            seen = label


def _value(derivation: Derivation, *, verbose: bool) -> str:
    """The value, exact too where that says more."""
    exact = verbose or (isinstance(derivation.value, int) and derivation.dimension == "bytes")
    return f"{derivation.shown} ({derivation.value:,})" if exact and derivation.value is not None else derivation.shown


def _symbols(result: ExplainResult) -> Iterator[dict[str, Any]]:
    """Every symbol once, with its value and meaning."""
    used = {name: value for derivation in result.derivations for name, value in derivation.symbols.items()}
    meanings = {name: text for derivation in result.derivations for name, text in derivation.meanings.items()}
    symbols = [getattr(derivation.expression, "free_symbols", ()) for derivation in result.derivations]
    for name in dict.fromkeys(name for free in symbols for name in sorted(map(str, free))):
        value = used.get(name)
        figure = float(f"{float(value):.6g}") if isinstance(value, Fraction) else value
        yield {"symbol": name, "value": "" if figure is None else f"{figure:,}", "meaning": meanings.get(name, "")}


def _next(result: ExplainResult) -> str:
    if result.asked:
        return f"tpsim plan {result.asked} -v"
    if result.wires:
        return f"tpsim collective {result.name.replace('_', '-')} {result.wires}"
    if result.name.replace("-", "_") in ONE_LINK:
        return "tpsim schema hardware -v"
    if result.name == "slice":
        return 'tpsim shard "A[I,J] -> A[I_X,J]"'
    if result.derivations[0].expression is not None:
        return f"tpsim collective {result.name.replace('_', '-')} --hw dgx-h100 --ranks 8"
    return f"tpsim hw show {shlex.quote(result.machine)}"


NAMES = (Column("of", "of"), Column("name", "name"), Column("what", "what"))


def list_page(result: ExplainListResult, *, verbose: bool) -> Page:  # noqa: ARG001  # as every page
    """What can be explained: a name per line, by what bears it."""
    of = f" of {result.scenario}" if result.scenario else ""
    more = (
        "a scenario has more: its collectives, arrays and blocks: tpsim explain llama3-70b-h100",
        "one constant alone: tpsim explain dgx-h100.chip.memory.bandwidth; a machine may be a file",
    )
    return Page(
        result,
        tables=(Table(NAMES, result.records(), group="of"),),
        notes=() if of else more,
        next_command=f"tpsim explain step.time_s {result.asked if of else 'llama3-70b-h100'}",
    )
