"""Blocks on a terminal of any width, and in Markdown."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.report.layout import (
    NARROWEST,
    Grid,
    Heading,
    Paragraph,
    Points,
    cells,
    to_markdown,
    to_terminal,
    wrap,
)

texts = st.text(st.sampled_from("ab-+/ ×µ漢字é\u0301\n\x1b|"), max_size=60)


@st.composite
def grids(draw):
    columns = draw(st.integers(1, 6))
    row = st.tuples(*[texts] * columns)
    return Grid(draw(row), tuple(draw(st.lists(row, max_size=4))), words=draw(st.booleans()))


blocks = st.lists(
    st.one_of(
        st.builds(Heading, texts),
        st.builds(Paragraph, texts),
        st.builds(Points, st.lists(texts, max_size=3).map(tuple)),
        grids(),
    ),
    max_size=5,
)


@settings(max_examples=300, deadline=None)
@given(blocks, st.integers(1, 130))
def test_no_line_is_wider_than_asked_for(page, width):
    for line in to_terminal(page, width=width).split("\n"):
        assert cells(line) <= max(width, NARROWEST)
        assert "\x1b" not in line


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(6, 60))
def test_wrapping_keeps_every_character(text, width):
    lines = wrap(text, width, first="- ", rest="  ")
    kept = "".join(line[2:] for line in lines)
    assert kept.replace(" ", "") == "".join(c for c in text if c.isprintable()).replace(" ", "")


def test_wide_table_is_cut_into_tables_that_repeat_the_labels():
    grid = Grid(("", "first", "second"), (("label", "x" * 20, "y" * 20),))
    lines = to_terminal([grid], width=40).splitlines()
    assert [line for line in lines if line.startswith("label")] == [
        f"label  {'x' * 20}",
        f"label  {'y' * 20}",
    ]


def test_names_of_columns_break_at_hyphens_above_their_values():
    grid = Grid(("", "gpu-disaggregated"), (("a", "1"),))
    assert to_terminal([grid], width=80).splitlines() == [
        "            gpu-",
        "   disaggregated",
        "a              1",
    ]


def test_style_dresses_headings_alone():
    text = to_terminal(
        [Heading("Title"), Paragraph("prose")],
        width=40,
        style=lambda text, *, role: text.upper() if role == "heading" else text,
    )
    assert text == "TITLE\nprose\n"


def test_markdown_escapes_what_would_be_markup():
    page = to_markdown([Heading("H"), Grid(("", "a|b"), ((" in", "*"),))])
    assert page == "## H\n\n|  | a\\|b |\n| --- | ---: |\n| &nbsp;in | \\* |\n"
