"""A small question that answers fast: four servers, five minutes of traffic."""

import numpy as np
import pytest

from firstlight import workload
from firstlight.scenario import Scenario


@pytest.fixture(scope="session")
def trace_path(tmp_path_factory):
    """Five minutes of Poisson traffic with the lengths of the conversation hour."""
    rng = np.random.default_rng(7)
    hour = workload.load("azure-2023-conv")
    count = 450
    rows = rng.integers(0, len(hour), count)
    trace = workload.Trace.from_arrivals(
        np.sort(rng.random(count)) * 300.0,
        isl_tok=hour.isl_tok[rows],
        osl_tok=hour.osl_tok[rows],
        duration_s=300.0,
        name="five-minutes",
        source="drawn from the Azure 2023 conversation hour (CC-BY-4.0)",
    )
    path = tmp_path_factory.mktemp("trace") / "five minutes é.csv"
    workload.write_trace(trace, path=path)
    return path


@pytest.fixture(scope="session")
def small(trace_path):
    return Scenario.default().replace(
        power_w=60e3, trace=str(trace_path), correlation_s=float("inf")
    )
