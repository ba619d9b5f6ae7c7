"""Servers that read prompts for others: what they hold, what goes over their ports, and how many keep up."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import product
from math import prod

import pytest
from yaml import safe_dump

import tpsim
from tpsim.answers.explain import explain
from tpsim.answers.plan import fitting
from tpsim.answers.servers import NEAR, NOUNS, Both, Side, lost, whole
from tpsim.answers.verdict import percent
from tpsim.claims.verify import verify
from tpsim.pages.plan import page
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.op import Leaf
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo
from tpsim.question.save import scenario_text
from tpsim.question.scenario import resolve

PORT = {"extends": "dgx-h100", "levels": {"network": {"link": {"bandwidth": "50 GB/s"}}}}
"""A port of 50 GB/s, of which the cost model ``book`` takes all, with no launch."""


def cut(tp=1, dp=1, pp=1, **layout):
    """The mesh and the layout of a server, with what else is said of it."""
    rest = {name: layout.pop(name) for name in ("batch", "hardware", "pipeline") if name in layout}
    roles = {"tp": "tensor", "dp": "data", **({"pp": "pipe"} if pp > 1 else {}), **layout}
    mesh = {"pipe": pp, "data": dp, "tensor": tp} if pp > 1 else {"data": dp, "tensor": tp}
    return {"mesh": mesh, "layout": roles, **rest}


def scenario(decoding, reading, model="llama-3-70b", hardware=PORT, **work):
    workload = {"kind": "serve", "batch": 8, "prompt": 4096, "output": 8, **work}
    head = {"tpsim": "scenario/1", "name": "served", "model": model, "hardware": hardware, "cost_model": "book"}
    return {**head, **decoding, "workload": workload, **({"prefill": reading} if reading else {})}


def served(decoding, reading, overrides=(), **rest):
    return tpsim.plan(scenario(decoding, reading, **rest), overrides=overrides)


@pytest.mark.parametrize(
    ("model", "tp", "bytes_", "ms"),
    [
        ("deepseek-v3", 1, 287_834_112, 5.7567),
        ("llama-3-70b", 1, 1_342_177_280, 26.844),
        ("llama-3-70b", 8, 1_342_177_280, 3.3554),
    ],
)
def test_the_cache_of_4096_tokens_goes_over_one_port_and_over_eight(model, tp, bytes_, ms):
    """Facts K19: 61 layers x 576 x 2 bytes and 80 x 2 x 8 x 128 x 2 bytes of a token, at 50 GB/s."""
    plan = served(cut(tp), cut(tp, batch=1), model=model)
    servers = plan.serve.servers
    assert servers.transfer_bytes == bytes_
    assert 1e3 * servers.transfer_s == pytest.approx(ms, rel=1e-4)
    assert servers.transfer_s == pytest.approx(bytes_ / tp / 50e9, rel=1e-12)
    assert plan.serve.reply_s == plan.serve.ttft_s + servers.transfer_s + 7 * plan.serve.tpot_s
    assert plan.serve.ttft_s == plan.prefill.step.time_s  # the first token is the prompt's, and waits for no cache


ENDS = {
    "as many chips": (cut(4), cut(4), 2, 1),
    "fewer chips that take": (cut(2), cut(4), 1, 1),
    "sequences of their own, one request": (cut(2, dp=4), cut(2), 1, 1),
    "sequences of their own, several requests": (cut(2, dp=2), cut(1, dp=2), 6, 1),
    "requests that do not divide": (cut(1, dp=4), cut(2), 5, 1),
    "kv heads copied where they are taken": (cut(16), cut(4), 2, 2),
    "kv heads copied where they are sent": (cut(4), cut(16), 2, 1),
    "the cache split by sequences": (cut(4, cache="batch"), cut(4), 4, 1),
    "the cache split by tokens": (cut(8, cache="sequence"), cut(2), 2, 1),
    "stages that send": (cut(2), cut(2, pp=2, pipeline={"layers": "nearly-even"}), 2, 1),
    "stages that take": (cut(2, pp=2, pipeline={"layers": "nearly-even"}), cut(4), 2, 1),
}


@pytest.mark.parametrize(("model", "prompt"), [("llama-3-8b", 64), ("mistral-7b", 8192), ("deepseek-v3", 64)])
@pytest.mark.parametrize("case", ENDS)
def test_bytes_at_either_port_are_those_of_blocks_counted_chip_by_chip(case, model, prompt):
    """A cache of a window of 4,096 tokens among them, and latents, which every chip of tp has whole."""
    decoding, reading, requests, copies = ENDS[case]
    plan = served(decoding, {**reading, "batch": requests}, model=model, prompt=prompt, batch=16)
    sent, taken = counted(plan, requests)
    assert max(sent.values()) == Both(plan, plan.prefill).sent_bytes
    assert max(taken.values()) == Both(plan, plan.prefill).taken_bytes(requests)
    if model == "llama-3-8b":
        assert sum(taken.values()) == requests * copies * 32 * 2 * 8 * 128 * 2 * prompt
    assert plan.serve.servers.transfer_s == max(*sent.values(), *taken.values()) / 50e9


def counted(plan, requests):
    """What each chip of either server sends and takes, of blocks that it has and wants.

    Request r goes to group r of the chips that have sequences of their own, and so on again; chips with the same block
    send as much of it.
    """
    sent, taken, dims = defaultdict(Fraction), defaultdict(Fraction), plan.prefill.sizes.dims
    for leaf in {
        op.output.name for op in plan.lowered.program.ops if isinstance(op, Leaf) and op.output.role == "cache"
    }:
        (array, have), (_, want) = blocks(plan.prefill, leaf), blocks(plan, leaf)
        each = prod(dims[dim] for dim in array.dims if dim != "b") * DTYPE_BYTES[array.dtype]
        for (chip, asked), (block, chips) in product(want.items(), grouped(have).items()):
            (here, groups), (there, spread) = block[0], asked[0]
            both = sum(r * groups // requests == here and r % spread == there for r in range(requests))
            bytes_ = both * each * prod(overlap(*pair) for pair in zip(asked[1:], block[1:], strict=True))
            taken[chip] += bytes_
            for one in chips:
                sent[one] += Fraction(bytes_) / len(chips)
    return sent, taken


def blocks(plan, leaf):
    """A cache, and what of it each chip has: its group of sequences, the layers of its stage, and a stretch per dim."""
    question, axes = plan.question, plan.question.mesh.axes
    array = next(op.output for op in plan.lowered.program.ops if isinstance(op, Leaf) and op.output.name == leaf)
    layers, have = question.split or (question.model.layers,), {}
    for places in product(*map(range, axes.values())):
        at, parts = dict(zip(axes, places, strict=True)), {}
        for dim in (*array.dims, "stage"):
            here, ways = 0, 1
            for axis in question.layout.stages if dim == "stage" else array.type.axes(dim):
                here, ways = here * axes[axis] + at[axis], ways * axes[axis]
            parts[dim] = here, ways
        first = sum(layers[: parts["stage"][0]])
        stretches = [
            (Fraction(n, ways), Fraction(n + 1, ways)) for dim, (n, ways) in parts.items() if dim in array.dims[1:]
        ]
        have[places] = parts["b"], (first, first + layers[parts["stage"][0]]), *stretches
    return array, have


def grouped(have):
    """The chips that have each block."""
    chips = defaultdict(list)
    for chip, block in have.items():
        chips[block].append(chip)
    return chips


def overlap(one, other):
    """What two stretches have in common."""
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


def test_a_server_of_prompts_is_planned_as_a_scenario_of_prompts_and_neither_holds_what_the_other_does():
    """Prompts of 4,096 tokens need 128 times the rows that a step needs, and no room for replies."""
    reading = cut(4, batch=4, sequence_parallel=True)
    plan, same = served(cut(8), reading), served(cut(8), None)
    alone = {**scenario({**reading, "batch": None}, None), "workload": {"kind": "prefill", "batch": 4, "prompt": 4096}}
    alone.pop("batch")
    prompt = tpsim.plan(alone)
    assert plan.serve.ttft_s == prompt.step.time_s
    assert plan.serve.servers.prompt_memory == prompt.memory == plan.prefill.memory
    assert prompt.memory.cache_bytes == 4 * 4096 * 327_680 / 4
    step = tpsim.plan({**scenario(cut(8), None), "workload": {"kind": "decode", "batch": 8, "context": 4104}})
    assert plan.memory.peak_bytes == step.memory.peak_bytes < same.memory.peak_bytes
    assert plan.serve.tpot_s == same.serve.tpot_s
    assert plan.serve.largest_batch > same.serve.largest_batch
    assert same.serve.servers is None


def test_servers_that_do_both_are_left_as_they_were_where_none_are_named():
    assert "servers" not in served(cut(8), None).to_json()["result"]["serve"]


def test_what_a_server_of_prompts_does_not_say_is_the_scenarios():
    other = served(cut(8), cut(8, hardware="dgx-a100"), batch=4)
    assert (other.prefill.question.machine.name, other.prefill.question.workload.global_batch) == ("dgx-a100", 4)
    assert "hardware/dgx-a100.yaml" in [path for path, _ in other.question.inputs]
    assert other.prefill.question.cost_model == "book"
    same = served(cut(8), cut(8, hardware="dgx-a100", batch=4))
    assert same.serve.ttft_s == other.serve.ttft_s


def test_the_prompts_of_the_book_keep_three_servers_busy_for_one_that_decodes():
    """AI-09, AI-11: 0.9096 s a prompt; 32 replies of 512 tokens at 19 ms a step: 2.99, of 4 servers 0.2 % are lost."""
    reads, decodes = Side(16, 1, 0.9096, 0), Side(16, 32, 512 * 0.019, 0)
    assert decodes.per_s / reads.per_s == pytest.approx(2.99, abs=0.003)
    assert whole(reads, decodes) == (3, 1)
    per_s = 32 / (512 * 0.019)
    assert lost(3, 1, reads, decodes) == pytest.approx(1 - per_s * (0.9096 + 1 / per_s) / 4)
    assert lost(3, 1, reads, decodes) < 0.003


@pytest.mark.parametrize(("read_s", "decode_s"), [(0.9, 9.7), (0.1, 9.7), (9.7, 0.1), (1, 32), (1.3, 32), (3.1, 67)])
def test_fewer_servers_next_to_the_ratio_lose_more(read_s, decode_s):
    reads, decodes = Side(4, 1, read_s, 0), Side(16, 32, decode_s, 0)
    found, ratio = whole(reads, decodes), decodes.per_s / reads.per_s
    flip = slice(None, None, -1 if ratio < 1 else 1)  # the more numerous kind first
    many, fewer = found[flip]
    assert abs(many - fewer * max(ratio, 1 / ratio)) < 1 + 1e-9
    assert lost(*found, reads, decodes) <= NEAR
    for few in range(1, fewer):
        around = [int(few * max(ratio, 1 / ratio)) + more for more in (0, 1)]
        assert min(lost(*(some, few)[flip], reads, decodes) for some in around) > NEAR


def test_tokens_of_all_chips_are_those_of_the_slower_kind():
    plan = served(cut(8), cut(4, batch=1), batch=64, output=256)
    servers, reply_s = plan.serve.servers, 255 * plan.serve.tpot_s
    assert servers.prompt_requests_per_s == pytest.approx(1 / plan.serve.ttft_s)
    assert servers.decode_requests_per_s == pytest.approx(64 / reply_s)
    assert servers.ratio == pytest.approx(64 * plan.serve.ttft_s / reply_s)
    made = 256 * min(servers.prompt_servers / plan.serve.ttft_s, servers.decode_servers * 64 / reply_s)
    chips = 4 * servers.prompt_servers + 8 * servers.decode_servers
    assert servers.tokens_per_s_chip == pytest.approx(made / chips)
    best = 256 / (4 * plan.serve.ttft_s + 8 * reply_s / 64)
    assert servers.lost_share == pytest.approx(1 - servers.tokens_per_s_chip / best)


def test_a_port_that_is_full_for_longer_than_a_prompt_takes_sets_the_pace():
    slow = {"extends": "dgx-h100", "levels": {"network": {"link": {"bandwidth": "1 Gbit/s"}}}}
    plan = served(cut(8), cut(8, batch=1), hardware=slow)
    servers = plan.serve.servers
    full_s = 1_342_177_280 / 8 / 0.125e9
    assert full_s > plan.serve.ttft_s
    assert servers.transfer_s == pytest.approx(full_s)
    assert servers.prompt_requests_per_s == pytest.approx(1 / full_s)
    taken = 8 * full_s / (7 * plan.serve.tpot_s)  # eight requests in the seconds of their steps
    assert servers.port_share == pytest.approx(max(full_s / plan.serve.ttft_s, taken))
    assert servers.decode_requests_per_s == pytest.approx(1 / full_s)


def test_a_server_takes_no_more_prompts_at_once_than_it_replies_to():
    """Sixteen prompts are read at once, and go to two servers of eight replies: each chip takes eight of them."""
    plan = served(cut(4), cut(8, batch=16), batch=8)
    assert plan.serve.servers.transfer_s == pytest.approx(8 * 1_342_177_280 / 4 / 50e9)


def test_chips_that_share_the_way_out_of_their_node_share_it_for_caches_too():
    """a3high: 8 chips of a node have 800 Gbit/s together: 12.5 GB/s each, of four 25 GB/s."""
    whole_node, half = (
        served(cut(tp), cut(tp, batch=1), hardware="a3high-h100").serve.servers.transfer_s for tp in (8, 4)
    )
    assert whole_node == pytest.approx(1_342_177_280 / 100e9)
    assert half == pytest.approx(whole_node)


def test_replies_are_paid_for_with_the_chips_that_keep_up_with_them():
    """Chips of 4 $ read prompts of what chips of 2 $ decode."""
    dear, cheap = ({"extends": "dgx-h100", "chip": {"price_per_hour": price}} for price in (4.0, 2.0))
    plan = served(cut(8), cut(4, batch=1, hardware=dear), hardware=cheap, output=256)
    request_s = 2 * 8 * 255 * plan.serve.tpot_s / 8 + 4 * 4 * plan.serve.ttft_s
    assert plan.run.price_per_million_tokens == pytest.approx(1e6 * request_s / 3600 / 256)
    unpriced = served(cut(8), cut(4, batch=1, hardware="dgx-h100"), hardware=cheap)
    assert unpriced.run is None


def test_a_plan_says_whether_its_prompts_fit_too():
    plan = served(cut(8), cut(1, batch=1))
    assert (plan.memory.fits, plan.serve.servers.prompt_memory.fits) == (True, False)
    (line,) = (line for line in plan.lines if line.label == "prompts")
    assert line.text.startswith("DOES NOT FIT: peak 143.2 GB of 80 GB")
    assert not line.ok
    assert "if it fitted" in plan.lines[0].text
    assert plan.change is None


def test_a_question_whose_prompts_do_not_fit_has_no_plan_that_fits():
    for chips, fits in ((1, False), (8, True)):
        question = resolve(scenario(cut(8), cut(chips, batch=1)))
        assert (fitting(question, Memo()) is not None) == fits


def test_a_move_of_caches_is_launched_as_prompts_are_and_not_by_a_graph_of_steps():
    """One of eight chips takes the whole cache, which eight send: it is the fuller port."""
    plan = served(cut(1, dp=8), cut(8, batch=1), ["cost_model=additive"], model="llama-3-8b", hardware="dgx-h100")
    both = Both(plan, plan.prefill)
    assert (plan.question.force.launch, plan.prefill.question.force.launch) == ("graph", None)
    assert both.takes.launch_s == both.sends.launch_s
    assert plan.serve.servers.transfer_s == both.takes.time_s > both.sends.time_s


def test_a_demand_on_the_first_token_is_one_on_servers_of_prompts():
    asked = ["require.ttft=< 300 ms", "require.tpot=< 100 ms"]
    assert served(cut(8), cut(8, batch=1), asked).ok
    broken = served(cut(8), cut(2, batch=1), asked)
    assert [limit.name for limit in broken.broken] == ["ttft"]


def test_a_saved_scenario_is_the_same_plan(tmp_path):
    plan = served(cut(8), cut(4, batch=2, hardware={"extends": "dgx-a100", "chip": {"price_per_hour": 1.0}}))
    path = tmp_path / "saved.yaml"
    path.write_text(scenario_text(plan.question, tmp_path), encoding="utf-8")
    again = tpsim.plan(path)
    assert again.serve.servers == plan.serve.servers
    assert again.resolved["prefill"] == plan.resolved["prefill"]


def test_a_machine_of_prompts_in_a_file_beside_the_scenario_is_found_from_where_that_is_saved(tmp_path):
    own, there = tmp_path / "own", tmp_path / "there"
    own.mkdir()
    there.mkdir()
    text = "tpsim: hardware/1\nextends: dgx-a100\nname: mine\n"
    (own / "mine.yaml").write_text(text, encoding="utf-8")
    stated = {**scenario(cut(8), cut(4, batch=2, hardware="./mine.yaml")), "hardware": "dgx-h100"}
    (own / "asked.yaml").write_text(safe_dump(stated), encoding="utf-8")
    plan = tpsim.plan(own / "asked.yaml")
    (there / "saved.yaml").write_text(scenario_text(plan.question, there), encoding="utf-8")
    again = tpsim.plan(there / "saved.yaml")
    assert again.prefill.question.machine.name == "mine"
    assert again.serve.servers == plan.serve.servers


def test_a_machine_of_another_kind_is_an_assumption_of_its_own():
    asked = ["cost_model=additive"]
    plan = served(cut(8), cut(8, hardware="l40s-pcie", batch=1), asked, hardware="dgx-h100")
    texts = [one.text for one in plan.assumptions]
    assert any(text.startswith("prefill: ") for text in texts)
    assert not [text for text in texts if text.startswith("prefill: ") and text.removeprefix("prefill: ") in texts]
    assert plan.question.guesses > served(cut(8), None, asked, hardware="dgx-h100").question.guesses


def test_a_report_shows_the_constants_of_the_machine_of_prompts_too():
    """Its guesses were counted, and stood nowhere."""
    overrides = ["prefill.hardware=dgx-a100"]
    sides = [tpsim.plan("llama3-70b-h100-disaggregated", overrides=given) for given in ([], overrides)]
    shown = [
        [table.title for table in page(plan, verbose=True).tables if table.title.startswith("Constants of ")]
        for plan in sides
    ]
    assert shown == [["Constants of dgx-h100"], ["Constants of dgx-h100", "Constants of dgx-a100"]]


def test_each_number_of_servers_of_prompts_is_explained_by_figures_that_come_to_it():
    asked = scenario(cut(8), cut(4, batch=1), batch=64, output=256)
    plan = tpsim.plan(asked)
    told = {name: explain(f"serve.servers.{name}", asked).derivations[0] for name in NOUNS}
    assert {name: one.value for name, one in told.items()} == {name: plan.serve.servers[name] for name in NOUNS}
    assert told["transfer_bytes"].formula == "4*L*T*b*dh*kv_heads*m"
    assert told["transfer_s"].formula == (
        "the longer of 6.711 ms in which a chip sends 335.5 MB and 3.355 ms in which a chip takes 167.8 MB"
    )
    reads, decodes = Both(plan, plan.prefill).reads, Both(plan, plan.prefill).decodes
    assert told["ratio"].formula == f"{decodes.per_s:.4g}/{reads.per_s:.4g} requests per second"
    with pytest.raises(InputError, match="unknown-name"):
        explain("serve.servers.nonsense", asked)


def test_both_servers_are_run_and_neither_claim_fails():
    asked = scenario(cut(2, dp=2), cut(2, pp=2, batch=2), model="llama-3-8b", prompt=64, batch=4)
    runs = verify(asked).runs
    assert [run.name for run in runs] == ["served", "served: prefill"]
    assert [run.mesh["tensor"] for run in runs] == [2, 2]
    assert [run.mesh.get("pipe") for run in runs] == [None, 2]
    assert all(check.ok for run in runs for check in run.checks)


def test_a_page_names_both_servers_and_what_goes_between_them():
    plan = served(cut(8), cut(4, batch=1, sequence_parallel=True), batch=64, output=256)
    facts = dict(page(plan, verbose=False).facts)
    due = "dgx-h100, 4 chips: data 1 x tensor 4; tensor 4 = nvlink 4; tp tensor, dp data, sequence parallel; 1 at once"
    assert facts["prompts"] == due
    assert [line.label for line in plan.lines] == ["time", "memory", "prompts", "servers"]
    prompts, servers = (line.text for line in plan.lines[2:])
    told = plan.serve.servers
    busy = f"the fullest port is busy {percent(told.port_share)} of its time"
    assert prompts.endswith(f"; a cache of 1.342 GB moves in 6.711 ms, {busy}")
    several = served(cut(8), cut(4, batch=3, sequence_parallel=True), batch=64, output=256).lines[2].text
    assert "; 3 caches of 1.342 GB each move in 20.13 ms, " in several
    assert servers.startswith(
        f"{told.ratio:.3g} of prompts for each that decodes; {told.prompt_servers} of prompts and "
    )
    assert servers.endswith(f"; {told.tokens_per_s_chip:,.0f} tokens/s per chip of all")
    assert (plan.serve.served_tokens_per_s_chip, plan.serve.requests_per_s) == (told.tokens_per_s_chip, None)
    assert "caches sent layer by layer" in " ".join(plan.not_modelled)


@pytest.mark.parametrize("own", [False, True], ids=["the same machine", "another machine"])
def test_a_better_part_of_the_machine_is_that_of_the_servers_of_prompts_too_if_it_is_theirs(own):
    """They were left as they were: twice the compute of a machine that reads prompts brought them nothing."""
    other = {"hardware": "dgx-h200"} if own else {}
    asked = {**scenario(cut(8), {**cut(4), **other}, hardware="dgx-h100"), "layout": {"tp": "tensor"}}
    how = {"vary": ["sp=false"], "top": 1, "by": "money", "overrides": ["assume.price_per_chip_hour=2"]}
    found = tpsim.search(asked, sensitivity=True, **how)
    (compute,) = [part for part in found.sensitivity if part.part == "compute"]
    peaks = {name: f"{1.1 * peak.value} FLOP/s" for name, peak in found.questions[0].machine.chip.peak.items()}
    then = tpsim.search({**asked, "hardware": {"extends": "dgx-h100", "chip": {"peak": peaks}}}, **how)
    assert compute.held == pytest.approx(then.best.planned.value("money"), rel=1e-9)
    assert compute.held == compute.best
    assert (compute.held < 0.99 * compute.today) != own  # it decodes by its memory
