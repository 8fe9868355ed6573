# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The layer table as a file, and as what the hardware holds from the start."""

import json
import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from haan.config import Configuration, ConfigurationError
from haan.flags import RowFlag
from haan.golden import normalize
from haan.hdl import generate
from haan.layer import LayerSettings, record_layout
from haan.layers import LayersFile, LayerTable
from haan.registers import register_map
from haan.sim import Row, layer_writes, runner
from haan.sim.jobs import AxiJob, AxiRecord, BusAccess, Moment
from haan.sim.rows import row_beats, row_results, stream_fields
from haan.sim.top import build_top

DOCS = Path(__file__).parents[1] / "docs"
TINY = Configuration.preset("tiny")
BUILD = TINY.with_(layers=6, skipping=True, anchors=2, subsampling=True, name="layers")
OKAY, SLVERR = 0, 2


def table(*layers, **top):
    return LayerTable.from_dict({"layer": list(layers), **top})


def skipped(anchor, **fields):
    return {"n": 8, "skip": True, "anchor": anchor, **fields}


# The file


def test_numbers_follow_each_other_unless_given():
    layers = table({"n": 1}, {"n": 2}, {"n": 3, "layer": 7}, {"n": 4}, {"n": 5, "layer": 3})
    assert {number: each.n for number, each in layers.settings.items()} == {
        0: 1,
        1: 2,
        3: 5,
        7: 3,
        8: 4,
    }
    assert list(layers.settings) == [0, 1, 3, 7, 8]


def test_fields_are_those_of_the_settings_with_their_defaults():
    (settings,) = table({"n": 12}).settings.values()
    assert settings == LayerSettings(n=12)
    given = LayerSettings(
        n=12,
        mode="rmsnorm",
        eps=1e-6,
        n_sub=4,
        first=1,
        stride=2,
        affine="gamma",
        slot=1,
        keep_isd=True,
        ratio=0.5,
        guard_low=0.25,
        guard_high=8.0,
        guard_action="exact",
    )
    layers = table(given.model_dump() | {"name": "norm"})
    assert dict(layers.settings) == {0: given}
    assert dict(layers.names) == {0: "norm"}
    assert layers.subsampled == [0]


def test_anchors_keep_their_isd_and_no_other_layer_does():
    layers = table({"n": 8}, {"n": 8}, skipped(1), skipped(1), {"n": 8, "keep_isd": True})
    assert [each.keep_isd for each in layers.settings.values()] == [False, True, False, False, True]


def test_records_are_those_of_the_settings():
    layers = table({"n": 8}, skipped(0, guard_high=math.inf), {"n": 3})
    records = layers.records(BUILD)
    assert records[0] == LayerSettings(n=8, keep_isd=True).record(BUILD)
    assert records[1] == LayerSettings(n=8, skip=True).record(BUILD)
    assert records[1]["guard_high"] == 0x7F800000


def test_exact_computes_everything():
    layers = table({"n": 8, "n_sub": 2, "stride": 2, "first": 1}, skipped(0, n_sub=4))
    for settings in layers.exact().values():
        assert settings.samples == settings.n
        assert not (settings.skip or settings.keep_isd or settings.first)


def test_a_file_and_its_digest(tmp_path):
    path = tmp_path / "layers.toml"
    path.write_text('schema = 1\n[[layer]]\nn = 8\nname = "a"\n[[layer]]\nn = 8\neps = 1\n')
    layers = LayerTable.read(path)
    assert layers.digest() == table({"n": 8}, {"n": 8, "eps": 1.0}).digest()
    assert layers.digest() != table({"n": 8}, {"n": 8, "eps": 2.0}).digest()
    assert layers.digest() != table({"n": 8}, {"n": 8, "eps": 1.0, "layer": 2}).digest()
    back = LayerTable.from_dict({"layer": _without_none(json.loads(json.dumps(layers.to_list())))})
    assert back == layers


def _without_none(layers):
    return [
        {name: value for name, value in layer.items() if value not in (None, "Infinity")}
        for layer in layers
    ]


BAD_FILES = {
    "newer": ([{"n": 1}], {"schema": 2}, "schema = 2 is newer than this version of haan reads (1)"),
    "no layers": ([], {}, "there is no [[layer]] table"),
    "unknown key": ([{"n": 1}], {"layers": 3}, "layers is not a field of this file"),
    "unknown field": ([{"n": 1}, {"n": 1, "gama": 1}], {}, "layer 1: gama is not a field of a lay"),
    "no n": ([{"layer": 4}], {}, "layer 4: n is missing"),
    "n of 0": ([{"n": 0, "name": "mlp"}], {}, "layer 0 (mlp): n = 0: input should be greater"),
    "n a word": ([{"n": "8"}], {}, "layer 0: n = '8': input should be a valid integer"),
    "a norm": ([{"n": 1, "mode": "norm"}], {}, "layer 0: mode = 'norm': input should be 'layern"),
    "stride": ([{"n": 8, "stride": 3}], {}, "layer 0: stride = 3 is not a power of two"),
    "beyond": ([{"n": 8, "first": 1}], {}, "layer 0: first + stride·(n_sub − 1) = 8 is beyond"),
    "negative": ([{"n": 1, "layer": -1}], {}, "layer -1: layer = -1: input should be greater"),
    "large": ([{"n": 1, "layer": 256}], {}, "layer 256: layer = 256: input should be less than"),
    "twice": ([{"n": 1}, {"n": 2, "layer": 0}], {}, "layer 0: layer = 0 is there already"),
    "twice by count": (
        [{"n": 1, "layer": 1}, {"n": 2, "layer": 0}, {"n": 3}],
        {},
        "layer 1: layer",
    ),
    "no anchor": (
        [{"n": 8}, {"n": 8, "skip": True}],
        {},
        "layer 1: skip = true, but anchor is mis",
    ),
    "itself": ([{"n": 8}, skipped(1)], {}, "layer 1: anchor = 1 is the layer itself; allowed is a"),
    "after": ([{"n": 8}, skipped(2), {"n": 8}], {}, "layer 1: anchor = 2 comes after the layer"),
    "absent": ([{"n": 8}, skipped(9)], {}, "layer 1: anchor = 9 is not in this file; allowed is a"),
    "skipped": ([{"n": 8}, skipped(0), skipped(1)], {}, "layer 2: anchor = 1 is itself skipped"),
    "nothing before": ([skipped(3)], {}, "that computes its ISD: there is none"),
    "both": ([{"n": 8}, skipped(0, keep_isd=True)], {}, "layer 1: skip = true and keep_isd = true"),
    "ratio": ([{"n": 8}, skipped(0, ratio=1e9)], {}, "layer 1: ratio = 1000000000.0: input should"),
    "guard": ([{"n": 8}, skipped(0, guard_low=-1.0)], {}, "layer 1: guard_low = -1.0: input shoul"),
    "no table": ([3], {}, "layer 0 = 3: input should be an object"),
}


@pytest.mark.parametrize(("layers", "top", "sentence"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files(layers, top, sentence):
    with pytest.raises(ConfigurationError) as refusal:
        LayerTable.from_dict({"layer": layers, **top}, "layers.toml")
    assert str(refusal.value).startswith("layers.toml: ")
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(ConfigurationError, match=r"absent\.toml: can't be read"):
        LayerTable.read(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("[[layer]\n")
    with pytest.raises(ConfigurationError, match=r"broken\.toml: is not valid TOML"):
        LayerTable.read(tmp_path / "broken.toml")


BAD_BUILDS = {
    "layer": ({}, [{"n": 1, "layer": 6}], "layer 6: layer = 6, but this build has layers 0 to 5"),
    "n": ({}, [{"n": 1}, {"n": 65}], "layer 1: n = 65 exceeds this build's max_n = 64"),
    "slot": ({}, [{"n": 1, "slot": 2}], "layer 0: slot = 2, but this build has slots 0 to 1"),
    "norm": ({"norms": ["rmsnorm"]}, [{"n": 1}], "layer 0: mode = 'layernorm', but this build has"),
    "skip": (
        {"skipping": False, "anchors": 1},
        [{"n": 8}, skipped(0)],
        "layer 0: keep_isd = true, but this build has skipping = false",
    ),
    "samples": (
        {"subsampling": False},
        [{"n": 8, "n_sub": 4}],
        "layer 0: n_sub = 4 of n = 8, but this build has subsampling = false",
    ),
    "one place": (
        {"anchors": 1},
        [{"n": 8}, {"n": 8}, skipped(0), skipped(1)],
        "layer 2: anchor = 0, but layer 1 keeps its ISDs in the same place before they are used: this build has anchors = 1",
    ),
}


@pytest.mark.parametrize(("change", "layers", "sentence"), BAD_BUILDS.values(), ids=BAD_BUILDS)
def test_what_the_build_cannot_do(change, layers, sentence):
    with pytest.raises(ConfigurationError) as refusal:
        LayerTable.from_dict({"layer": layers}, "layers.toml").check(BUILD.with_(**change))
    assert f"layers.toml: {sentence}" in str(refusal.value)


def test_anchors_in_different_places_work():
    table({"n": 8}, {"n": 8}, skipped(0), skipped(1), {"n": 8}, skipped(4)).check(BUILD)


def test_the_example_of_the_documents():
    text = (DOCS / "layers.md").read_text("utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    build = Configuration.preset("ecp5").with_(layers=4, skipping=True)
    layers = LayerTable.from_dict(tomllib.loads(example))
    layers.check(build)
    assert [each.keep_isd for each in layers.settings.values()] == [False, False, True, False]


def test_the_documents_name_every_field():
    text = (DOCS / "layers.md").read_text("utf-8")
    rows = [
        (name, default)
        for names, default in re.findall(
            r"^\| (`\w+`(?:, `\w+`)*) \| [^|]+ \| ([^|]*?) \| ", text, re.MULTILINE
        )
        for name in re.findall(r"\w+", names)
    ]
    fields = LayersFile.model_fields["layer"].annotation.__args__[0].model_fields
    assert {name for name, _ in rows} == set(fields)
    for name, default in rows:
        value = fields[name].default
        written = default.strip("`")
        if fields[name].is_required():
            assert written == "required"
        elif value is None:
            assert written == "unset"
        else:
            assert tomllib.loads(f"v = {written}")["v"] == value


def test_published_schema_is_the_model_s():
    published = json.loads((DOCS / "layers.schema.json").read_text("utf-8"))
    assert published == LayersFile.model_json_schema(by_alias=True)


# In the hardware

FIRST = {
    0: LayerSettings(n=12, eps=1e-3),
    1: LayerSettings(n=20, mode="rmsnorm"),
    2: LayerSettings(n=8, mode="rmsnorm", n_sub=4),
    3: LayerSettings(n=16, keep_isd=True),
    4: LayerSettings(n=16, skip=True, anchor=3),
}
THEN = {1: LayerSettings(n=6), 3: LayerSettings(n=9, mode="rmsnorm")}
"""What is committed later; layer 2 is removed."""
UNCHECKED = LayerSettings(n=8).record(BUILD) | {"valid": 0, "n": 0, "n_sub": 127}
RANDOM = np.random.default_rng(5)
ROWS = {layer: RANDOM.normal(0, 2, 24).astype(np.float16) for layer in range(6)}


def rows_of(layers):
    """A row for each of the first four layers, and one for a layer that isn't there."""
    return [
        Row(ROWS[number][: layers[number].n if number in layers else 4], None, layer=number)
        for number in (0, 1, 2, 3, 5)
    ]


def load(layer):
    """Loads an entry, then reads it."""
    registers = register_map(BUILD)
    shadow = [each.address for name, each in registers.items() if name.startswith("layer_")]
    return [
        Moment([BusAccess(registers["load"].address, layer)]),
        Moment([BusAccess(address) for address in shadow]),
    ]


def entries(record):
    """The layer records that were read."""
    registers = register_map(BUILD)
    names = [name for name in registers if name.startswith("layer_")]
    found = []
    for loaded, answers in zip(record.answers[0:10:2], record.answers[1:10:2], strict=True):
        assert {response for response, _, _ in (*loaded, *answers)} == {OKAY}
        words = dict(zip(names, (data for _, data, _ in answers), strict=True))
        found.append(registers.layer_record(words))
    return found


def commit(layer, record):
    return layer_writes(BUILD, layer, record)


def run(before, after, reset_at=None):
    """Loads of all entries, rows, commits, rows."""
    loads = [moment for layer in range(5) for moment in load(layer)]
    follower = LayerSettings(n=4, skip=True, anchor=4).record(BUILD)
    commits = [
        *commit(5, follower),
        *commit(1, THEN[1].record(BUILD)),
        *commit(2, UNCHECKED),
        *commit(3, THEN[3].record(BUILD)),
        *commit(4, LayerSettings(n=4).record(BUILD)),
        *commit(5, follower),
        *commit(5, UNCHECKED),
    ]
    first, then = rows_of(before), rows_of(after)
    beats = [beat for row in first for beat in row_beats(BUILD, row)]
    count = len(beats)
    beats += [beat for row in then for beat in row_beats(BUILD, row)]
    always = np.ones(1, np.bool_)
    job = AxiJob(
        beats=beats,
        moments=[*loads, Moment(commits, beats=count, packets=len(first))],
        reset_at=reset_at,
        **stream_fields(BUILD, [*first, *then], always, always),
    )
    records = {number: each.record(BUILD) for number, each in FIRST.items()}
    made = build_top(BUILD, verilog=generate(BUILD, records=records))
    record: AxiRecord = runner.run(made, "haan.sim.bench_axi", job)
    assert record.fault == ""
    results = row_results(BUILD, beats, record)
    return record, results[: len(first)], results[len(first) :]


def judge(results, layers):
    """Rows are as their layers want it, or null rows where there is none."""
    for number, result in zip((0, 1, 2, 3, 5), results, strict=True):
        assert result.layer == number
        if number not in layers:
            assert result.flags == RowFlag.SETTINGS
            assert result.bits.size == 0
            continue
        settings = layers[number]
        options = settings.model_dump(include={"mode", "eps", "n_sub", "first", "stride"})
        golden = normalize(ROWS[number][: settings.n], configuration=BUILD, **options)
        assert np.array_equal(result.bits, golden.bits.reshape(-1))
        assert result.flags == 0


AFTER = {0: FIRST[0], **THEN}


def test_layers_that_exist_from_the_start():
    """They are there without a write, can be read and overwritten, and skip like others."""
    record, first, then = run(FIRST, AFTER)
    assert entries(record) == [FIRST[layer].record(BUILD) for layer in range(5)]
    judge(first, FIRST)
    judge(then, AFTER)
    size = len(commit(0, UNCHECKED))
    answers = [answer[0] for answer in record.answers[-1]][size - 1 :: size]
    # An anchor that skips from the start is none; when it is overwritten it may be one.
    assert answers == [SLVERR, *[OKAY] * 6]


def test_a_reset_brings_back_what_was_never_overwritten_and_nothing_else():
    undisturbed, _, _ = run(FIRST, AFTER)
    reset_at = undisturbed.answers[-1][-1][2] + 2
    record, first, then = run({0: FIRST[0]}, AFTER, reset_at)
    found = entries(record)
    assert found[0] == FIRST[0].record(BUILD)
    assert [each["valid"] for each in found] == [1, 0, 0, 0, 0]
    judge(first, {0: FIRST[0]})
    judge(then, AFTER)


def test_a_reset_before_any_commit_changes_nothing():
    undisturbed, _, _ = run(FIRST, AFTER)
    reset_at = undisturbed.seen[1].cycle
    record, first, then = run(FIRST, AFTER, reset_at)
    assert [each["valid"] for each in entries(record)] == [1] * 5
    judge(first, FIRST)
    judge(then, AFTER)


def test_without_layers_the_verilog_is_that_of_ever():
    plain = generate(TINY)
    assert generate(TINY, records=None) == generate(TINY, records={}) == plain
    record = LayerSettings(n=5).record(TINY)
    other = generate(TINY, records={1: record})
    assert other != plain
    word = sum(
        record[name] << sum(list(record_layout(TINY).values())[:place])
        for place, name in enumerate(record_layout(TINY))
    )
    assert re.search(rf"memory\[1\] = \d+'h0*{word:x};", other)
