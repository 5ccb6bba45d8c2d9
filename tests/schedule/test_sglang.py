"""SGLang's rule, one habit at a time, on times that can be worked out by hand."""

import numpy as np
import pytest

from firstlight import schedule
from firstlight.errors import ScheduleError
from validation.test_queueing import TOKEN_PS, table


def run(rows, *, policy="sglang", units=(), **changed):
    """Rows of (arrival in token times, prompt, answer); a step takes a token time a token."""
    settings = {"token_budget": 64, "max_seqs": 16, "kv_blocks": 4000, "cache": schedule.Cache()}
    pool = schedule.Pool(
        name="one",
        role="mixed",
        replicas=1,
        table=table(16),
        policy=policy,
        **(settings | changed),
    )
    at, isl, osl = (np.array(column) for column in zip(*rows, strict=True))
    named = [*units, *([] for _ in rows[len(units) :])]
    arrivals = schedule.Arrivals(
        arrival_ps=(at * TOKEN_PS).astype(np.uint64),
        isl_tok=isl.astype(np.uint32),
        cached_tok=np.zeros(len(rows), np.uint32),
        osl_tok=osl.astype(np.uint32),
        unit_from=np.cumsum([0, *map(len, named)]).astype(np.uint64),
        unit_of=np.concatenate([[], *named]).astype(np.uint32),
    )
    fleet = schedule.Fleet(pools=(pool,), block_tok=1, unit_tok=16)
    return schedule.run(fleet, arrivals)


def test_a_long_prompt_stalls_every_answer_and_under_vllm_does_not():
    rows = [(0, 10, 30), (15, 640, 1)]
    widest = {}
    for policy in ("sglang", "vllm"):
        outcome = run(rows, policy=policy)
        longest = np.flatnonzero(outcome.gap_counts)[-1]
        widest[policy] = schedule.gap_edges_ps()[longest] / TOKEN_PS
    # Ten chunks of 64 tokens run before the next token; vLLM gives each step at most 64 tokens.
    assert widest["sglang"] == pytest.approx(641, rel=0.01)
    assert widest["vllm"] == pytest.approx(64, rel=0.01)


def test_the_longest_cached_prefix_goes_first_and_by_arrival_it_does_not():
    warm, fresh = list(range(6)), [90, 91, 92]
    rows = [(0, 96, 1), (10, 48, 1), (11, 96, 1)]
    for order, first in (("lpm", 2), ("fcfs", 1)):
        outcome = run(
            rows,
            units=[warm, fresh, warm],
            max_seqs=1,
            sglang=schedule.SGLang(order=order),
        )
        assert np.argsort(outcome.first_ps)[1] == first, order


def test_of_equal_prompts_one_goes_first_and_the_others_find_it():
    prompt = list(range(4))
    outcome = run([(0, 64, 2), (0, 64, 2), (0, 64, 2)], units=[prompt] * 3, max_seqs=1)
    total = outcome.total[0]
    assert total["hit_hbm_tok"] == 2 * 48  # whole units, short of the last token
    assert total["blocks_taken"] == total["blocks_freed"]


def test_what_is_computed_twice_side_by_side_is_kept_once():
    """Both prompts run in one step; from its end they share their blocks, and a third has room."""
    rows = [(0, 32, 40), (0, 32, 40), (1, 100, 5)]
    settings = schedule.SGLang(conservativeness=0.0)
    shared = run(rows, units=[[0, 1], [0, 1]], kv_blocks=160, sglang=settings)
    alone = run(rows, units=[[0, 1], [5, 6]], kv_blocks=160, sglang=settings)
    assert shared.started_ps[2] == 64 * TOKEN_PS
    assert alone.started_ps[2] > 64 * TOKEN_PS


@pytest.mark.parametrize("conservativeness", [0.0, 1.5])
def test_a_low_share_retracts_and_a_share_of_one_never_does(conservativeness):
    rows = [(20 * i, 20, 60) for i in range(12)]
    outcome = run(
        rows, kv_blocks=300, cache=None, sglang=schedule.SGLang(conservativeness=conservativeness)
    )
    assert (outcome.state == schedule.STATES.index("done")).all()
    assert (outcome.total[0]["preemptions"] > 0) == (conservativeness == 0.0)


def test_the_request_with_the_fewest_tokens_out_is_retracted():
    """The last to come has the fewest tokens out when memory runs out, not the longest wait."""
    rows = [(0, 20, 100), (30, 20, 100), (90, 30, 90)]
    outcome = run(rows, kv_blocks=245, cache=None, sglang=schedule.SGLang(conservativeness=0.0))
    assert outcome.preemptions.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sglang": schedule.SGLang(order="dfs")}, "lpm or fcfs"),
        ({"sglang": schedule.SGLang(conservativeness=-1.0)}, "0 to 100"),
        ({"policy": "sgl"}, "vllm, sglang, orca or static"),
    ],
)
def test_impossible_settings_are_refused(changed, said):
    with pytest.raises(ScheduleError, match=said):
        run([(0, 10, 2)], **changed)
