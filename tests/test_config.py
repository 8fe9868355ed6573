# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Configurations: what is refused and what is advised in its place, presets, documents."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haan.config import Configuration, ConfigurationError, How, What, presets

ROOT = Path(__file__).parents[1]


def refusal(data):
    """The sentence with which a configuration is refused; None if it is accepted."""
    try:
        Configuration.from_dict(data)
    except ConfigurationError as error:
        return str(error)
    return None


def advised(data, sentence):
    """The configuration with the first advice of a refusal followed."""
    name, value = re.search(r"nearest that works: (\w+) = ([^;]+)", sentence).groups()
    value = tomllib.loads(f"value = {value}")["value"]
    half = "how" if name in How.model_fields else "what"
    if name == "schema":
        return data | {name: value}
    return data | {half: data.get(half, {}) | {name: value}}


@pytest.mark.parametrize(
    ("data", "words", "advice"),
    [
        (
            {"what": {"max_n": 70000}},
            ["max_n = 70000", "less than or equal to 65536"],
            "max_n = 65536",
        ),
        ({"what": {"max_n": 0}}, ["max_n = 0", "greater than or equal to 1"], "max_n = 1"),
        ({"what": {"layers": 257}}, ["layers = 257", "256"], "layers = 256"),
        ({"what": {"slots": -1}}, ["slots = -1", "1"], "slots = 1"),
        (
            {"what": {"affine": "beta"}},
            ["affine = 'beta'", "'gamma+beta'"],
            "affine = 'gamma+beta'",
        ),
        (
            {"what": {"parameter_format": "fp23"}},
            ["parameter_format = 'fp23'", "'fp16' or 'fp32'"],
            "parameter_format = 'fp32'",
        ),
        (
            {"what": {"norms": ["rmsnorm", "rmsnorm"]}},
            ["['rmsnorm', 'rmsnorm']", "twice"],
            "norms = ['rmsnorm']",
        ),
        (
            {"what": {"formats": ["int8"], "affine": "none"}},
            ["affine = 'none'", "INT8 results need a gamma"],
            "affine = 'gamma'",
        ),
        *(
            (
                {"what": {"formats": ["int8"], name: True, "parameter_format": "fp32"}},
                [f"{name} = true", "needs FP16 beside INT8"],
                "formats = ['fp16', 'int8']",
            )
            for name in ("one_plus_gamma", "cast_before_gamma", "skipping", "statistics_stream")
        ),
        (
            {"what": {"formats": ["int8"]}, "how": {"accumulator": "window"}},
            ["accumulator = 'window'", "squares of FP16 numbers", "formats = ['int8']"],
            "accumulator = 'exact'",
        ),
        (
            {"what": {"formats": ["int8", "fp16", "int8"]}},
            ["twice"],
            "formats = ['fp16', 'int8']",
        ),
        (
            {"what": {"one_plus_gamma": True, "parameter_format": "fp32", "affine": "none"}},
            ["one_plus_gamma = true", "affine = 'none'"],
            "affine = 'gamma'",
        ),
        (
            {"what": {"one_plus_gamma": True}},
            ["one_plus_gamma = true", "can't hold the sum"],
            "parameter_format = 'fp32'",
        ),
        (
            {"what": {"cast_before_gamma": True, "affine": "none"}},
            ["cast_before_gamma = true", "needs a gamma"],
            "affine = 'gamma'",
        ),
        ({"what": {"n_sub": 64}}, ["n_sub = 64", "subsampling"], "subsampling = true"),
        (
            {"what": {"n_sub": 65, "subsampling": True, "max_n": 64}},
            ["n_sub = 65", "max_n = 64"],
            "n_sub = 64",
        ),
        ({"how": {"p_n": 24}}, ["p_n = 24", "power of two"], "p_n = 16"),
        ({"how": {"p_n": 3, "p_d": 1}}, ["p_n = 3", "power of two"], "p_n = 2"),
        ({"how": {"p_n": 9, "p_d": 8}}, ["p_n = 9", "power of two"], "p_n = 8"),
        ({"how": {"p_n": 3}}, ["p_n = 3", "power of two"], "p_n = 8"),
        ({"how": {"p_d": 6}}, ["p_d = 6", "power of two"], "p_d = 4"),
        ({"how": {"p_d": 100}}, ["p_d = 100", "power of two"], "p_d = 8"),
        ({"how": {"p_d": 16}}, ["p_d = 16", "p_n = 8"], "p_d = 8"),
        ({"how": {"p_n": 1025}}, ["p_n = 1025", "1024"], "p_n = 1024"),
        ({"how": {"isd_interval": 8}}, ["isd_interval = 8", "16 to 64"], "isd_interval = 1"),
        ({"how": {"isd_interval": 9}}, ["isd_interval = 9", "16 to 64"], "isd_interval = 16"),
        ({"how": {"isd_interval": 99}}, ["isd_interval = 99", "64"], "isd_interval = 64"),
        ({"how": {"newton_steps": 4}}, ["newton_steps = 4", "3"], "newton_steps = 3"),
        ({"how": {"segments": 40}}, ["segments = 40", "16, 32 or 64"], "segments = 32"),
        ({"how": {"seed": "tune"}}, ["seed = 'tune'", "'classic'"], "seed = 'tuned'"),
        (
            {"how": {"accumulator": "windowed"}},
            ["accumulator = 'windowed'"],
            "accumulator = 'window'",
        ),
        ({"how": {"pipeline": "long"}}, ["pipeline = 'long'", "'balanced'"], None),
        ({"how": {"bus_bytes": 1}}, ["bus_bytes = 1", "2"], "bus_bytes = 2"),
        ({"how": {"bus_bytes": 12}}, ["bus_bytes = 12", "power of two"], "bus_bytes = 8"),
        (
            {"how": {"bus_bytes": 16}},
            ["bus_bytes = 16", "p_n = 8 elements, 16 bytes"],
            "p_n = 16",
        ),
        (
            {"what": {"formats": ["int8"]}, "how": {"bus_bytes": 8}},
            ["bus_bytes = 8", "p_n = 8 elements, 8 bytes"],
            "p_n = 16",
        ),
        (
            {"what": {"formats": ["int8"]}, "how": {"bus_bytes": 1024, "p_n": 1024}},
            ["bus_bytes = 1024", "p_n = 1024 elements, 1024 bytes"],
            "bus_bytes = 512",
        ),
        ({"schema": 0}, ["schema = 0", "1"], "schema = 1"),
    ],
    ids=str,
)
def test_a_refusal_names_value_reason_and_the_nearest_that_works(data, words, advice):
    sentence = refusal(data)
    assert sentence is not None
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence
    if advice is not None:
        assert sentence.endswith(f"nearest that works: {advice}")
    assert refusal(advised(data, sentence)) is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"schema": 2}, "schema = 2 is newer than this version of haan reads (1); update haan"),
        ({"schema": True}, "schema = True: input should be a valid integer"),
        ({"what": {"max_n": True}}, "what.max_n = True: input should be a valid integer"),
        ({"what": {"max_n": "64"}}, "what.max_n = '64': input should be a valid integer"),
        ({"what": {"max_n": 64.0}}, "what.max_n = 64.0: input should be a valid integer"),
        ({"what": {"subsampling": 1}}, "what.subsampling = 1: input should be a valid boolean"),
        ({"what": {"norms": []}}, "what.norms = []: tuple should have at least 1 item"),
        ({"what": {"norms": "rmsnorm"}}, "what.norms = 'rmsnorm': input should be a valid array"),
        ({"what": {"formats": []}}, "what.formats = []: tuple should have at least 1 item"),
        ({"what": {"formats": ["bf16"]}}, "input should be 'fp16' or 'int8'"),
        ({"what": {"depth": 3}}, "what.depth is not a field of the configuration"),
        ({"how": []}, "how = []: input should be an object"),
        ({"title": "x"}, "title is not a field of the configuration"),
        ({"name": "2nd"}, "name = '2nd': string should match pattern"),
    ],
    ids=str,
)
def test_what_has_no_nearest_is_refused_with_the_reason(data, words):
    assert words in refusal(data)


INTEGERS = ("max_n", "layers", "slots", "token_slots", "n_sub", "p_d", "p_n", "newton_steps")
WORDS = st.sampled_from(
    [
        "none",
        "gamma",
        "gamma+beta",
        "fp16",
        "fp32",
        "exact",
        "window",
        "tuned",
        "classic",
        "short",
        "",
    ]
)
NUMBERS = st.one_of(st.integers(-2, 70), st.integers(-1 << 40, 1 << 40))
VALUES = dict.fromkeys((*INTEGERS, "isd_interval", "segments"), NUMBERS)
VALUES |= dict.fromkeys(("affine", "parameter_format", "accumulator", "seed", "pipeline"), WORDS)
SWITCHES = (
    "one_plus_gamma",
    "cast_before_gamma",
    "subsampling",
    "skipping",
    "statistics_stream",
    "segment_slopes",
    "isd_multipliers",
)
VALUES |= dict.fromkeys(SWITCHES, st.booleans())
VALUES |= {"formats": st.lists(st.sampled_from(["fp16", "int8"]), min_size=1, max_size=3)}
VALUES |= {"bus_bytes": st.sampled_from([2, 3, 4, 8, 512, 1024, 1 << 30])}


def half(model):
    """Some fields of one half of a configuration, with values of the right type."""
    return st.fixed_dictionaries(
        {}, optional={name: VALUES[name] for name in model.model_fields if name in VALUES}
    )


@given(st.fixed_dictionaries({"what": half(What), "how": half(How)}))
def test_advice_leads_to_a_configuration_that_works(data):
    """A step can put right one field, and uncover what two fields have against each other: two steps a field."""
    for _ in range(2 * len(VALUES)):
        sentence = refusal(data)
        if sentence is None:
            break
        data = advised(data, sentence)
    assert refusal(data) is None


@pytest.mark.parametrize("name", presets())
def test_presets(name, tmp_path):
    configuration = Configuration.preset(name)
    assert configuration.name == name
    assert Configuration.from_dict(configuration.to_dict()) == configuration
    shipped = ROOT / "haan" / "presets" / f"{name}.toml"
    assert Configuration.from_toml(shipped) == configuration


def test_the_promised_presets():
    ecp5, u280 = Configuration.preset("ecp5"), Configuration.preset("u280-32x512")
    assert ecp5.how.p_d == ecp5.how.p_n >= 8
    assert ecp5.what.max_n >= 4096
    assert (u280.how.p_d, u280.how.p_n, u280.what.n_sub) == (32, 512, 256)


def test_digest_tells_hardware_apart_but_not_names():
    digests = {Configuration.preset(name).digest() for name in presets()}
    assert len(digests) == len(presets())
    tiny = Configuration.preset("tiny")
    assert tiny.with_(name="other").digest() == tiny.digest()
    both = [tiny.with_(formats=formats) for formats in (["fp16", "int8"], ["int8", "fp16"])]
    assert both[0].digest() == both[1].digest() != tiny.digest()
    for name, value in {"p_d": 1, "max_n": 63, "newton_steps": 2, "affine": "gamma"}.items():
        assert tiny.with_(**{name: value}).digest() != tiny.digest()


@pytest.mark.parametrize(
    "content",
    [b"max_n = ", b"[what]\n[what]\n", b"\xff\xfe", b"x = " + b"[" * 100_000, b"x = 1\nx = 2"],
    ids=["half a line", "a table twice", "not UTF-8", "too deep", "a key twice"],
)
def test_broken_toml(tmp_path, content):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"broken\.toml: is not valid TOML"):
        Configuration.from_toml(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="absent.toml: can't be read: No such file"):
        Configuration.from_toml(tmp_path / "absent.toml")


def test_unknown_preset():
    with pytest.raises(ConfigurationError, match="'ecp6'; there are: ecp5, ecp5-16, tiny"):
        Configuration.preset("ecp6")


def test_published_schema_is_the_model_s():
    published = json.loads((ROOT / "docs" / "configuration.schema.json").read_text("utf-8"))
    assert published == Configuration.model_json_schema(by_alias=True)


def test_every_field_is_documented():
    rows = re.findall(
        r"^\| `(\w+)` \| (.+?) \| `(.+?)` \|",
        (ROOT / "docs" / "configuration.md").read_text("utf-8"),
        re.MULTILINE,
    )
    documented = {
        name: tomllib.loads(f"x = {default}")["x"]
        for name, _, default in rows
        if default != "unset"
    }
    defaults = Configuration().to_dict()
    expected = {"schema": 1, "name": "haan"} | defaults["what"] | defaults["how"]
    unset = {name for name, value in expected.items() if value is None}
    assert unset == {name for name, _, default in rows if default == "unset"}
    assert documented == {name: expected[name] for name in expected.keys() - unset}
