"""The printed answer: complete, at most as wide as the terminal, and honest about gaps."""

from __future__ import annotations

import math

import msgspec
import pytest

from firstlight import report
from firstlight.report.layout import cells


@pytest.mark.parametrize("width", [20, 40, 72, 80, 100, 132, 200])
def test_no_line_is_wider_than_the_terminal(answer, width):
    for text in (report.tables(answer(), width=width), report.sources(answer(), width=width)):
        assert max(map(cells, text.splitlines())) <= width


def test_first_line_is_the_answer(answer):
    text = " ".join(report.tables(answer()).split())
    assert text.startswith(answer().answer)


def test_every_design_and_section_is_there(answer):
    text = report.tables(answer(), width=200)
    for design in answer().designs:
        assert design.name in text
    for words in (
        "requests/s in limits", "TTFT p50", "TTFT p90", "TPOT p90", "$/Mtok input", "GPUs freed",
        "as a band", "conservative end: not feasible", "cooling and distribution",
        "linear layers only", "at: board, above idle", "at: facility", "b200-8x nvfp4",
        "h100-sxm-8x fp8", "time to reload a mask", "optical clock", "price a watt", "same load",
        "What binds", "all bursts together", "KV blocks", "chunk, tokens", " TP", "a assumed",
    ):  # fmt: skip
        assert words in text, words


def test_results_carry_the_letter_of_their_status(answer):
    text = report.tables(answer())
    (line,) = (line for line in text.splitlines() if line.startswith("requests/s in limits"))
    assert line.count(" a") == len(answer().designs)
    provenance = tuple(
        msgspec.structs.replace(fact, status="measured")
        if fact.path.endswith("gpu-colocated.goodput_request_per_s")
        else fact
        for fact in answer().provenance
    )
    stronger = report.tables(msgspec.structs.replace(answer(), provenance=provenance))
    (line,) = (line for line in stronger.splitlines() if line.startswith("requests/s in limits"))
    assert " m " in line


def test_infeasible_designs_say_why_and_show_no_numbers(answer):
    text = report.tables(answer(ttft_s=1e-4))
    assert text.count("is not feasible: TTFT") == 3
    assert "requests/s in limits" not in text


def test_designs_that_miss_a_given_load_say_how_far(small):
    from firstlight import evaluate

    over = evaluate.compare(small, rate_request_per_s=300.0)
    text = " ".join(report.tables(over, at_given_load=True).split())
    assert "gpu-colocated misses the service level at this load" in text
    assert "90.0% wanted" in text
    assert not report.meets(over.design("gpu-colocated"), quantile=0.9)


def test_retrofit_says_what_adding_brings(answer):
    kept = answer(installed={"h100-sxm-8x": 3})
    text = " ".join(report.tables(kept).split())
    assert kept.design("optical+gpu").retrofit is not None
    assert "Added to the servers that stand - optical+gpu:" in text
    assert "requests/s more within limits" in text
    assert "Added to the servers" not in report.tables(answer())


def test_one_design_alone_has_no_rival_to_show(answer, small):
    alone = answer(designs=[small.design("gpu-colocated")])
    text = report.tables(alone)
    assert "the scenario lacks one of the three designs" in " ".join(text.split())
    assert "as a band" not in text
    assert "stops paying" not in text


def test_markdown_has_the_same_rows_as_the_terminal(answer):
    page = report.tables(answer(), form="markdown")
    assert "| requests/s in limits |" in page
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.count(" | ") for line in rows} <= {2, 3, 4}


def test_sources_name_every_input(answer):
    text = report.sources(answer(), width=250)
    for fact in answer().provenance:
        assert fact.path in text


def test_document_turns_what_json_cannot_hold_into_null_with_a_warning(answer):
    broken = msgspec.structs.replace(
        answer(), workload={**answer().workload, "correlation_s": math.inf, "span_s": math.nan}
    )
    document = report.document(broken)
    assert document["workload"]["correlation_s"] is None
    assert document["workload"]["span_s"] is None
    assert "workload.correlation_s: infinite; null stands for it" in document["warnings"]
    assert "workload.span_s: not a number; null stands for it" in document["warnings"]


def nulls(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from nulls(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            name = item.get("name", index) if isinstance(item, dict) else index
            yield from nulls(item, f"{path}.{name}")
    elif value is None:
        yield path


@pytest.mark.parametrize("changes", [{}, {"ttft_s": 1e-4}])
def test_every_null_has_its_reason_in_warnings(answer, changes):
    document = report.document(answer(**changes))
    warnings = " ".join(document["warnings"])
    infeasible = {f"designs.{d['name']}." for d in document["designs"] if not d["feasible"]}
    for path in nulls(document):
        if path.startswith("provenance") or path.endswith(".reason"):
            continue
        if not any(path.startswith(start) for start in infeasible):
            assert path in warnings, path
    for start in infeasible:
        assert f"{start[:-1]}: every result is null" in warnings
