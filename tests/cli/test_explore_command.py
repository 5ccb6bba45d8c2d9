"""firstlight explore without a terminal: what is refused, in one line, and where output goes."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fl:garbage", "a share string begins with 'fl:1?'"),
        ("fl:1?contxt_tok=5", "unknown field 'contxt_tok'; did you mean 'context_tok'?"),
        ("fl:1?pue=many", "share string: PUE"),
        ("fl:1?pue=1e9", "outside"),
        ("fl:1?traffic=/none.csv", "there is no file /none.csv"),
    ],
)
def test_a_share_string_that_means_nothing_is_refused_in_one_line(run, text, said):
    ran = run("explore", text, "--print", "json")
    assert ran.status == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


def test_output_goes_to_a_folder_that_exists(run, tmp_path):
    place = tmp_path / "none" / "x.json"
    ran = run("explore", "--print", "json", "-o", place)
    assert ran.status == 2
    assert f"{place}: cannot be written" in ran.err
    assert not place.parent.exists()
