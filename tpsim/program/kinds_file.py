"""The format ``tpsim: model/2``: blocks by name, and layers as a pattern of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag

from tpsim.program.dims import LOOPS
from tpsim.program.kinds import ALIKE, Layers
from tpsim.program.linear import Linear
from tpsim.program.model import (
    Attention,
    FeedForward,
    Latent,
    LayerKind,
    Mlp,
    Model,
    Moe,
    NoFeedForward,
    Positions,
    Positive,
)
from tpsim.program.model_file import ModelSourceFields
from tpsim.quantity.errors import At, InputError, Place, Problem, did_you_mean, unknown
from tpsim.quantity.spec import Count, Flag, Strict

if TYPE_CHECKING:
    from tpsim.quantity.spec import Document

Pair = tuple[str, str]


class RunFields(Strict):
    """Layers that follow each other: each `of` an attention and a feed-forward, or a `cycle` of such pairs."""

    repeat: Count = 1
    of: Pair | None = None
    cycle: Annotated[tuple[Pair, ...], Field(min_length=1)] | None = None


class MtpFields(Strict):
    """Modules that predict tokens further on: how many, and the blocks of each."""

    depth: Count = 1
    of: Pair


def _which(value: Any) -> str:
    """Which block of the vocabulary a map says that it is."""
    kind_word = value if isinstance(value, dict) else vars(value) if isinstance(value, Strict) else {}
    return str(kind_word.get("attention", kind_word.get("ffn", "")))


Block = Annotated[
    Annotated[Attention, Tag("gqa")]
    | Annotated[Latent, Tag("mla")]
    | Annotated[Linear, Tag("linear")]
    | Annotated[Mlp, Tag("mlp")]
    | Annotated[Moe, Tag("moe")]
    | Annotated[NoFeedForward, Tag("none")],
    Discriminator(_which),
]


BLOCKS = {
    "attention": {"attention": "gqa", "heads": 32, "kv_heads": 8, "head_dim": 128},
    "mlp": {"ffn": "mlp", "kind": "swiglu", "hidden": 14336},
}
"""What blocks look like."""

SAID = {"attention": ("gqa", "mla", "linear"), "ffn": ("mlp", "moe", "none")}
"""The fields of which a block has one, and what it says there."""

OTHERWISE = {
    "mha": "gqa, with as many kv_heads as heads",
    "mqa": "gqa, with kv_heads: 1",
    "dense": "mlp",
    **{kind: f"mlp, with kind: {kind}" for kind in get_args(FeedForward)},
}
"""What others call a block, or a kind of one -> what stands there."""


def refuse_unknown_blocks(document: Document) -> None:
    """Refuse blocks that do not say which of the vocabulary they are, before their fields are called unknown."""
    blocks = document.data.get("blocks")
    named = (
        {name: block for name, block in blocks.items() if isinstance(block, dict)} if isinstance(blocks, dict) else {}
    )
    wrong = []
    for name, block in named.items():
        part = next((part for part in SAID if part in block), "")
        if not part:
            message, remedy = f"block {name} does not say what it is", "add attention: gqa, or ffn: mlp"
            wrong.append(Problem("missing-field", message, document.key_place("blocks", name), remedy))
        elif (said := block[part]) not in SAID[part]:
            other, message = OTHERWISE.get(str(said)), f'blocks.{name}.{part} cannot be "{said}"'
            remedy = f"write {other}" if other else did_you_mean(str(said), SAID[part])
            note = f"values: {', '.join(SAID[part])}"
            wrong.append(Problem("unknown-value", message, document.place("blocks", name, part), remedy, note))
    if wrong:
        raise InputError(wrong)


class ModelFile2(Strict):
    """A decoder-only transformer of layers of several kinds; sizes are counts."""

    # `Model` is a class of its own: here blocks have names and layers are a pattern of these, there both are resolved.
    noun = "a model"

    tpsim: Literal["model/2"]
    name: str = Field(examples=["my-model"])
    source: ModelSourceFields | None = None
    hidden: Count = Field(examples=[4096])
    vocab: Count = Field(examples=[32000])
    vocab_padded: Count | None = None
    blocks: dict[str, Block] = Field(examples=[BLOCKS])
    layers: tuple[RunFields, ...] = Field(min_length=1, examples=[[{"repeat": 32, "of": [*BLOCKS]}]])
    mtp: MtpFields | None = None
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norms: Literal["pre", "post", "both"] = "pre"
    positions: Positions = "rope"
    max_positions: Count | None = None
    parallel_residual: Flag = False
    shared_norm: Flag = False
    tie_embeddings: Flag = False
    embedding_scale: Flag = False
    logit_softcap: Positive | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    params: Positive | None = None
    active: Positive | None = None


WORKED_OUT = {"vocab_padded", "mtp"}
SAME = tuple(field.name for field in fields(Model) if field.name in {*ModelFile2.model_fields} - WORKED_OUT)
"""Fields that the file and the model have alike."""

CYCLES = 10_000
"""A pattern that repeats more often is a slip of the keyboard."""


def model_of_kinds(file: ModelFile2, at: At) -> Model:
    """The model that a file describes. Raises InputError for a pattern of blocks that there are not."""
    for name in file.blocks:
        if name in LOOPS or not name.isidentifier():
            message = f'no block can be called "{name}": layers are called by their blocks, as loops are by theirs'
            raise InputError.one("bad-value", message, at("blocks", name), "write a word that is no loop's: local")
    runs = [run for place, fields in enumerate(file.layers) for run in _runs(file, fields, at, place)]
    further = [_known(file, file.mtp.of, at("mtp", "of"))] if file.mtp else []
    names = kind_names(list(dict.fromkeys([*(pair for pair, _ in runs), *further])))
    blocks: dict[str, Any] = {**file.blocks}
    return Model(
        kinds={name: LayerKind(blocks[attention], blocks[ffn]) for (attention, ffn), name in names.items()},
        stack=merged((names[pair], many) for pair, many in runs),
        vocab_padded=file.vocab_padded or file.vocab,
        mtp=(names[file.mtp.of], file.mtp.depth) if file.mtp else None,
        **{name: getattr(file, name) for name in SAME},
    )


def _runs(file: ModelFile2, fields: RunFields, at: At, place: int) -> Iterator[tuple[Pair, int]]:
    """What one entry of the pattern says: pairs of blocks, and how many layers of them follow each other."""
    if (fields.of is None) == (fields.cycle is None):
        remedy = "write {repeat: 32, of: [attention, mlp]}, or {repeat: 8, cycle: [[local, mlp], [global, mlp]]}"
        raise InputError.one("bad-value", "layers are of one pair of blocks, or a cycle", at("layers", place), remedy)
    if fields.of:
        yield _known(file, fields.of, at("layers", place, "of")), fields.repeat
        return
    if fields.repeat > CYCLES:
        raise InputError.one("bad-value", f"{fields.repeat} cycles", at("layers", place), f"write at most {CYCLES}")
    for turn in range(fields.repeat):
        yield from ((_known(file, pair, at("layers", place, "cycle", turn)), 1) for pair in fields.cycle or ())


def _known(file: ModelFile2, pair: Pair, place: Place | None) -> Pair:
    """The pair, if it is an attention and a feed-forward that the file has."""
    for name, part in zip(pair, ("attention", "ffn"), strict=True):
        fitting = [known for known, block in file.blocks.items() if hasattr(block, part)]
        if name not in fitting:
            noun = "attention" if part == "attention" else "feed-forward"
            remedy = "a pair is an attention, then a feed-forward" if name in file.blocks else ""
            raise unknown(name, f"{noun} of the model", fitting, place, remedy, listing="blocks")
    return pair


def merged(runs: Iterable[tuple[str, int]]) -> Layers:
    """Layers in order, those of one kind that follow each other together."""
    return tuple((kind, sum(many for _, many in same)) for kind, same in groupby(runs, key=itemgetter(0)))


def kind_names(pairs: Sequence[Pair]) -> dict[Pair, str]:
    """What kinds are called: by the block in which they differ, by both if need be; one alone as models/1 have it."""
    if len(pairs) == 1:
        return {pairs[0]: ALIKE}
    for place in (1, 0):
        names = [pair[place] for pair in pairs]
        if len({*names}) == len(names):
            return dict(zip(pairs, names, strict=True))
    return {pair: "_".join(pair) for pair in pairs}


def as_file(model: Model, source: str) -> dict[str, Any]:
    """A model as the fields of a file, which calls its kinds alike."""
    attentions, other = ({kind.attention for kind in model.kinds.values()}, {kind.ffn for kind in model.kinds.values()})

    def pair(kind: str) -> list[str]:
        if len(model.kinds) == 1:
            return ["attention", "ffn"]
        first, _, second = kind.partition("_")
        return ["attention", kind] if len(attentions) == 1 else [kind, "ffn"] if len(other) == 1 else [first, second]

    blocks = {
        name: block.model_dump(exclude_none=True)
        for kind, blocks in model.kinds.items()
        for name, block in zip(pair(kind), (blocks.attention, blocks.ffn), strict=True)
    }
    layers = [{"repeat": many, "of": pair(kind)} for kind, many in model.stack]
    kind, depth = model.mtp or ("", 0)
    mtp = {"mtp": {"depth": depth, "of": pair(kind)}} if kind else {}
    same = {name: getattr(model, name) for name in (*SAME, "vocab_padded")}
    return {"tpsim": "model/2", "source": {"title": source}, **same, "blocks": blocks, "layers": layers, **mtp}
