from firstlight import catalog
from firstlight.runners.measured import accuracy_of, command_for, measured


def test_every_row_names_what_the_catalog_knows_and_is_possible():
    assert measured()
    for row in measured():
        assert row.model in catalog.ids("model")
        assert row.engine in catalog.ids("engine")
        assert 0.9 < row.ratio < 100
        assert 0 < row.ratio_se < row.ratio
        assert 0 < row.top1_agreement_frac <= 1
        assert 1e-9 < row.energy_j_per_tok < 1
        assert row.source
        assert row.date


def test_nothing_is_guessed_for_another_model_engine_or_mask():
    row = measured()[0]
    known = accuracy_of(row.model, engine=row.engine, mask_bits=row.mask_bits)
    assert known is not None
    assert known.ratio <= row.ratio
    assert accuracy_of("llama-3.1-70b", engine=row.engine, mask_bits=row.mask_bits) is None
    assert accuracy_of(row.model, engine="tetra-2029-target", mask_bits=row.mask_bits) is None
    assert accuracy_of(row.model, engine=row.engine, mask_bits=3) is None
    assert "--engine iris-nova-optimistic" in command_for("x", engine="iris-nova-optimistic")
