# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The configuration: one validated, frozen object that says *what* a build can do and *how* it does it.

It is read from TOML (`Configuration.from_toml`, `Configuration.preset`) and everything else follows from it: the Verilog, the
golden model, the latencies, the testbenches.
"""

import ast
import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from .formats import FP16, FP32, INT8, FloatFormat, IntegerFormat
from .pipeline import PIPELINES
from .products import Products

SCHEMA = 1
"""The newest schema that this version reads."""
FORMATS = (FP16.name, INT8.name)
"""Formats of input and output, in the order of their numbers in a layer record."""


class ConfigurationError(ValueError):
    """A configuration that can't be read or can't work; the message is a sentence for the user."""


def _nearest_power_of_two(value: int, low: int, high: int) -> int:
    powers = [1 << k for k in range(low.bit_length() - 1, high.bit_length())]
    return min(powers, key=lambda power: (abs(power - value), power))


class What(BaseModel):
    """What the accelerator can do; each row chooses among this at run time."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    formats: Annotated[tuple[Literal["fp16", "int8"], ...], Field(min_length=1)] = ("fp16",)
    """Formats that a row may have on the way in and on the way out: FP16, INT8, or either. Builds with INT8 alone have lanes in fixed point, a
    fourth of the area."""
    norms: Annotated[tuple[Literal["layernorm", "rmsnorm"], ...], Field(min_length=1)] = (
        "layernorm",
        "rmsnorm",
    )
    """Norms that a row may ask for. Without LayerNorm a lane needs no window: a fourth of the area."""
    affine: Literal["none", "gamma", "gamma+beta"] = "gamma+beta"
    """The most that a row may ask for: a build without beta has no adder behind the multiplication by gamma."""
    parameter_format: Literal["fp16", "fp32"] = "fp16"
    """Format of gamma and beta as they are written. FP16 and BF16 values are FP32 values too."""
    one_plus_gamma: bool = False
    """Gamma may be written as an offset from one (Gemma)."""
    cast_before_gamma: bool = False
    """Rows may ask for x-hat to be rounded before it is multiplied by gamma (Hugging Face's LlamaRMSNorm)."""
    subsampling: bool = False
    """Rows may take their statistics from some of their elements: first, stride, N_sub."""
    n_sub: Annotated[int, Field(ge=1)] | None = None
    """N_sub for rows whose settings don't say otherwise (None: all elements)."""
    max_n: Annotated[int, Field(ge=1, le=65536)] = 4096
    """The longest row, in elements."""
    layers: Annotated[int, Field(ge=1, le=256)] = 8
    """Layers that TID tells apart."""
    slots: Annotated[int, Field(ge=1, le=256)] = 8
    """Gamma/beta vectors of max_n elements that the build stores."""
    token_slots: Annotated[int, Field(ge=1, le=65536)] = 1024
    """Token slots that TUSER tells apart."""
    skipping: bool = False
    """Rows may have their ISD predicted from that of an anchor layer (HAAN's ISD skipping)."""
    anchors: Annotated[int, Field(ge=1, le=256)] = 1
    """ISDs that are kept for each token slot: layers whose numbers are equal modulo this share a place. A power of two."""

    statistics_stream: bool = False
    """Mean and ISD of each row leave on a stream of their own."""

    @field_validator("formats")
    @classmethod
    def _ordered(cls, formats: tuple[str, ...]) -> tuple[str, ...]:
        ordered = [name for name in FORMATS if name in formats]
        if len(ordered) != len(formats):
            raise ValueError(
                f"{list(formats)} names a format twice; nearest that works: formats = {ordered}"
            )
        # In one order: equal hardware has equal digests.
        return tuple(ordered)

    @field_validator("norms")
    @classmethod
    def _unique(cls, norms: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(norms)) != len(norms):
            unique = list(dict.fromkeys(norms))
            raise ValueError(
                f"{list(norms)} names a norm twice; nearest that works: norms = {unique}"
            )
        return norms

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.one_plus_gamma and self.affine == "none":
            raise ValueError(
                "one_plus_gamma = true needs a gamma, but affine = 'none'; nearest that works: affine = 'gamma'"
            )
        if self.one_plus_gamma and self.parameter_format != "fp32":
            raise ValueError(
                "one_plus_gamma = true adds in FP32, but parameter_format = "
                f"'{self.parameter_format}' can't hold the sum; nearest that works: parameter_format = 'fp32'"
            )
        if self.cast_before_gamma and self.affine == "none":
            raise ValueError(
                "cast_before_gamma = true needs a gamma, but affine = 'none'; nearest that works: affine = 'gamma'"
            )
        if self.integer:
            self._check_integer()
        if self.anchors & (self.anchors - 1):
            nearest = _nearest_power_of_two(self.anchors, 1, 256)
            raise ValueError(
                f"anchors = {self.anchors} is not a power of two, so it does not divide the numbers of layers by bits; "
                f"nearest that works: anchors = {nearest}"
            )
        if self.anchors > 1 and not self.skipping:
            raise ValueError(
                f"anchors = {self.anchors} needs skipping = true; nearest that works: skipping = true"
            )
        if self.n_sub is not None and not self.subsampling:
            raise ValueError(
                f"n_sub = {self.n_sub} needs subsampling = true; nearest that works: subsampling = true"
            )
        if self.n_sub is not None and self.n_sub > self.max_n:
            raise ValueError(
                f"n_sub = {self.n_sub} exceeds max_n = {self.max_n}; nearest that works: n_sub = {self.max_n}"
            )
        return self

    def _check_integer(self) -> None:
        """What builds with INT8 alone can't do."""
        if self.affine == "none":
            raise ValueError(
                "affine = 'none', but INT8 results need a gamma, which their scale is put into; nearest that works: affine = 'gamma'"
            )
        for name in ("one_plus_gamma", "cast_before_gamma", "skipping", "statistics_stream"):
            if getattr(self, name):
                raise ValueError(
                    f"{name} = true needs FP16 beside INT8; nearest that works: formats = {list(FORMATS)}"
                )

    @property
    def layernorm(self) -> bool:
        return "layernorm" in self.norms

    @property
    def rmsnorm(self) -> bool:
        return "rmsnorm" in self.norms

    @property
    def gamma(self) -> bool:
        return self.affine != "none"

    @property
    def beta(self) -> bool:
        return self.affine == "gamma+beta"

    @property
    def parameters(self) -> FloatFormat:
        return FP32 if self.parameter_format == "fp32" else FP16

    @property
    def element(self) -> FloatFormat | IntegerFormat:
        """The format of the elements inside: the widest one."""
        return INT8 if self.integer else FP16

    @property
    def int8(self) -> bool:
        """Whether rows may be INT8."""
        return INT8.name in self.formats

    @property
    def integer(self) -> bool:
        """Whether all rows are INT8."""
        return self.formats == (INT8.name,)

    @property
    def mixed(self) -> bool:
        """Whether a row may be FP16 or INT8."""
        return self.int8 and not self.integer

    @property
    def id_bits(self) -> int:
        """Width of TID."""
        return max(1, (self.layers - 1).bit_length())

    @property
    def starts_early(self) -> bool:
        """Whether a row's result may start before its end: then what is missing can't make it all NaN."""
        return self.subsampling or self.skipping

    @property
    def slot_bits(self) -> int:
        return max(1, (self.slots - 1).bit_length())

    @property
    def token_bits(self) -> int:
        return max(1, (self.token_slots - 1).bit_length())


class How(BaseModel):
    """How the accelerator is built: speed and area. Results depend on `seed`, `segments`, `segment_slopes`, `newton_steps`
    and `accumulator` alone, never on lanes, interval or pipeline."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    p_d: Annotated[int, Field(ge=1, le=1024)] = 8
    """Lanes of the statistics unit: a power of two that divides p_n."""
    p_n: Annotated[int, Field(ge=1, le=1024)] = 8
    """Lanes of the normalization unit, and elements in a beat of either stream: a power of two."""
    accumulator: Literal["exact", "window"] = "exact"
    """Sum of squares: exact (80 bits and growth) or with a least significant bit of 2^-20 (52 bits and growth)."""
    seed: Literal["segmented", "tuned", "classic"] = "segmented"
    """First estimate of the inverse square root."""
    segments: Literal[16, 32, 64] = 64
    """Segments of the `segmented` seed over [1, 4)."""
    segment_slopes: bool = True
    """A slope a segment; false: the slope of the classic i >> 1 everywhere."""
    newton_steps: Annotated[int, Field(ge=0, le=3)] = 1
    isd_interval: Annotated[int, Field(ge=1, le=64)] = 1
    """Cycles between rows that the path from the sums to the ISD needs: its multipliers are shared over as many cycles."""
    isd_multipliers: bool = True
    """False: that path has no multipliers, its products are added up over the cycles of `isd_interval`."""
    pipeline: Literal["balanced", "short"] = "balanced"
    """Where registers stand: `balanced` for 100 MHz on an ECP5, `short` for fewer cycles at a lower clock."""
    bus_bytes: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Bytes of TDATA outside (None: p_n elements, as inside): a power of two that is smaller than p_n elements."""

    @model_validator(mode="after")
    def _lanes(self) -> Self:
        # The other count of lanes bounds the nearest, unless it is no power of two itself.
        least = self.p_d if not self.p_d & (self.p_d - 1) else 1
        for name, value, low, high in (
            ("p_n", self.p_n, least, 1024),
            ("p_d", self.p_d, 1, self.p_n),
        ):
            if value & (value - 1):
                nearest = _nearest_power_of_two(value, low, high)
                raise ValueError(
                    f"{name} = {value} is not a power of two, so a beat's elements can't be numbered by bits; "
                    f"nearest that works: {name} = {nearest}"
                )
        if self.p_d > self.p_n:
            raise ValueError(
                f"p_d = {self.p_d} does not divide p_n = {self.p_n}: a beat has only p_n elements; "
                f"nearest that works: p_d = {self.p_n}"
            )
        if self.isd_interval not in (1, *range(16, 65)):
            raise ValueError(
                f"isd_interval = {self.isd_interval} is neither 1 nor 16 to 64: fewer cycles save no multiplier worth its "
                f"control; nearest that works: isd_interval = {1 if self.isd_interval < 9 else 16}"
            )
        if self.isd_interval == 1 and not self.isd_multipliers:
            raise ValueError(
                "isd_multipliers = false adds products up over the cycles of isd_interval, which is 1; "
                "nearest that works: isd_interval = 16"
            )
        return self

    @property
    def products(self) -> Products:
        """How the products from the sums of a row to its ISD are made."""
        return Products(self.isd_interval, self.isd_multipliers)

    @property
    def cuts(self) -> frozenset[str]:
        """Names of the places where the pipelines have a register."""
        return PIPELINES[self.pipeline]


class Configuration(BaseModel):
    """A build. `what` and `how` are its two halves; `schema` versions the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Annotated[int, Field(alias="schema", ge=1, le=SCHEMA)] = SCHEMA
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")] = "haan"
    what: What = What()
    how: How = How()

    @field_validator("schema_", mode="before")
    @classmethod
    def _known_schema(cls, value: Any) -> Any:
        return require_known_schema(value)

    @model_validator(mode="after")
    def _bus(self) -> Self:
        size = self.how.bus_bytes
        if size is None:
            return self
        if size & (size - 1):
            nearest = _nearest_power_of_two(size, 2, 1024)
            raise ValueError(
                f"bus_bytes = {size} is not a power of two, so it does not divide p_n elements; "
                f"nearest that works: bus_bytes = {nearest}"
            )
        if size >= self.beat_bytes:
            lanes = 2 * size * 8 // self.what.element.width
            nearest_bus = f"p_n = {lanes}" if lanes <= 1024 else f"bus_bytes = {size // 2}"
            raise ValueError(
                f"bus_bytes = {size} is not narrower than p_n = {self.how.p_n} elements, {self.beat_bytes} bytes; "
                f"nearest that works: {nearest_bus}"
            )
        return self

    @model_validator(mode="after")
    def _accumulator(self) -> Self:
        if self.what.integer and self.how.accumulator != "exact":
            raise ValueError(
                f"accumulator = {self.how.accumulator!r} shortens the squares of FP16 numbers, but formats = {list(self.what.formats)}; "
                "nearest that works: accumulator = 'exact'"
            )
        return self

    @property
    def beat_bytes(self) -> int:
        """Bytes of a beat inside: p_n elements."""
        return self.what.element.width // 8 * self.how.p_n

    @property
    def bus(self) -> int:
        """Bytes of a beat outside."""
        return self.how.bus_bytes or self.beat_bytes

    @classmethod
    def from_dict(cls, data: dict[str, Any], origin: str = "configuration") -> "Configuration":
        """Validates plain data; raises ConfigurationError with one sentence per fault."""
        try:
            # As JSON, because lists are tuples there even where types are strict: true is no number, and "8" isn't either.
            return cls.model_validate_json(json.dumps(data, default=str), strict=True)
        except ValidationError as error:
            raise ConfigurationError(f"{origin}: {sentence(error)}") from None

    @classmethod
    def from_toml(cls, path: str | Path) -> "Configuration":
        """Reads a configuration file."""
        return cls.from_dict(read_toml(path), str(path))

    @classmethod
    def preset(cls, name: str) -> "Configuration":
        """One of the configurations that come with the package; see `presets()`."""
        if name not in presets():
            raise ConfigurationError(f"unknown preset {name!r}; there are: {', '.join(presets())}")
        text = resources.files("haan").joinpath("presets", f"{name}.toml").read_text("utf-8")
        return cls.from_dict(tomllib.loads(text), f"preset {name}")

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def digest(self) -> str:
        """SHA-256 of the canonical JSON form without the name: equal for equal hardware."""
        text = self.model_copy(update={"name": "haan"}).model_dump_json(by_alias=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def with_(self, **changes: Any) -> "Configuration":
        """A copy with fields of `what` or `how` (or the name) changed, validated again."""
        data = self.to_dict()
        for key, value in changes.items():
            if key == "name":
                data[key] = value
            else:
                data["how" if key in How.model_fields else "what"][key] = value
        return type(self).from_dict(data)


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as plain data; ConfigurationError where it is none."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: is not valid TOML: {error}") from None


def require_known_schema(value: Any) -> Any:
    """Refuses the version of a file that is newer than this of haan."""
    if isinstance(value, int) and value > SCHEMA:
        raise ValueError(
            f"schema = {value} is newer than this version of haan reads ({SCHEMA}); update haan"
        )
    return value


def presets() -> list[str]:
    """Names of the presets."""
    folder = resources.files("haan").joinpath("presets")
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def sentence(
    error: ValidationError,
    fields: str = "the configuration",
    place: Callable[[tuple[int | str, ...]], str] = lambda loc: ".".join(map(str, loc)),
) -> str:
    """What is wrong with given data. `fields`: whose they are; `place` names one by where it stands."""
    parts = []
    for fault in error.errors():
        where = place(fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = f"{where} is not a field of {fields}"
        elif fault["type"] == "missing":
            message = f"{where} is missing"
        elif fault["type"] == "value_error":
            message = f"{where}: {message}" if where else message
        else:
            message = f"{where} = {fault['input']!r}: {message[:1].lower()}{message[1:]}"
            message += _advice(fault)
        parts.append(message)
    return "; ".join(parts)


def _advice(fault: ErrorDetails) -> str:
    """The nearest value that works, where the fault knows what works."""
    context, value = fault.get("ctx", {}), fault["input"]
    nearest = context.get("ge", context.get("le"))
    if fault["type"] == "literal_error":
        allowed = [
            ast.literal_eval(word) for word in re.findall(r"'[^']*'|\d+", context["expected"])
        ]
        if isinstance(value, str) and isinstance(allowed[0], str):
            nearest = difflib.get_close_matches(value, allowed, 1, cutoff=0.0)[0]
        elif isinstance(value, int) and isinstance(allowed[0], int):
            nearest = min(allowed, key=lambda number: abs(number - value))
    fields = [part for part in fault["loc"] if isinstance(part, str)]
    if nearest is None or fields[-1:] != [fault["loc"][-1]]:
        return ""
    return f"; nearest that works: {fields[-1]} = {nearest!r}"
