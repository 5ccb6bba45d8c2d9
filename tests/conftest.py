"""Shared by all tests: plain references are importable as `reference`; one small question to ask."""

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard():
    """Interrupts work even where the suite runs in the background of a shell that ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def short_trace(tmp_path_factory) -> Path:
    """Twenty seconds of Poisson arrivals with fixed lengths: a comparison of it is quick."""
    from firstlight import workload

    trace = workload.poisson_trace(2.0, duration_s=20.0, isl=1024, osl=64, seed=1, name="short")
    return workload.write_trace(trace, path=tmp_path_factory.mktemp("trace") / "short.csv")


@pytest.fixture(scope="session")
def small(short_trace):
    """The shipped scenario at 60 kW on a short trace."""
    from firstlight.scenario import Scenario

    return Scenario.default().replace(trace=str(short_trace), power_w=60e3, name="small")


@pytest.fixture(scope="session")
def answer(small):
    """A function from changes of the small scenario to its answer, each computed once."""
    from firstlight import evaluate

    known = {}

    def ask(**changes):
        scenario = small.replace(**changes) if changes else small
        key = scenario.hash()
        if key not in known:
            known[key] = evaluate.compare(scenario)
        return known[key]

    return ask
