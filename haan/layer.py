# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Layer settings: what a row asks of the hardware, and the record of plain numbers that the hardware is given."""

import math
import struct
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from .config import FORMATS, Configuration, ConfigurationError, sentence
from .formats import INT8
from .numerics import VARIANCE_BITS, Numerics, clog2

Scale = Annotated[float, Field(ge=2.0**-126, le=3.4028235e38, allow_inf_nan=False)]
"""A positive normal FP32 number."""


def float32_bits(value: float) -> int:
    """IEEE 754 binary32 bits of a number, rounded to nearest even."""
    try:
        return int.from_bytes(struct.pack(">f", value), "big")
    except OverflowError:
        return float32_bits(math.copysign(math.inf, value))


LARGEST_FLOAT32 = 3.4028235e38
"""A little above the largest finite FP32 number, which it is rounded to."""


class LayerSettings(BaseModel):
    """Settings of one layer. Latched whole when a row's first beat is taken."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    mode: Literal["layernorm", "rmsnorm"] = "layernorm"
    n: Annotated[int, Field(ge=1)]
    """Elements in a row."""
    eps: Annotated[float, Field(ge=0.0, le=LARGEST_FLOAT32, allow_inf_nan=False)] = 1e-5
    """Added to the variance (or the mean square), inside the root; FP32."""
    input_format: Literal["fp16", "int8"] = "fp16"
    output_format: Literal["fp16", "int8"] = "fp16"
    x_scale: Scale | None = None
    """What an INT8 element is multiplied by; None: each row brings its own, in TUSER."""
    y_scale: Scale = 1.0
    """What an INT8 result is to be multiplied by. The hardware doesn't need it: gamma and beta are written divided by it."""
    n_sub: Annotated[int, Field(ge=1)] | None = None
    """Sampled elements; None: all."""
    first: Annotated[int, Field(ge=0)] = 0
    """Index of the first sampled element."""
    stride: Annotated[int, Field(ge=1, le=65536)] = 1
    """Distance of sampled elements: a power of two."""
    affine: Literal["none", "gamma", "gamma+beta", "beta"] = "none"
    slot: Annotated[int, Field(ge=0)] = 0
    """Gamma/beta slot."""
    cast_before_gamma: bool = False
    """Round x-hat to the output format before multiplying by gamma (Hugging Face's LlamaRMSNorm)."""
    keep_isd: bool = False
    """Keep each row's ISD by token slot, for layers that skip."""
    skip: bool = False
    """Predict the ISD: `ratio` times that of the same token slot in layer `anchor`."""
    anchor: Annotated[int, Field(ge=0)] = 0
    ratio: Annotated[float, Field(ge=2.0**-16, le=2.0**16, allow_inf_nan=False)] = 1.0
    """FP32"""
    guard_low: Annotated[float, Field(ge=0.0)] = 0.0
    """Smallest ISD of the anchor from which is predicted; FP32."""
    guard_high: Annotated[float, Field(ge=0.0)] = math.inf
    """Largest; FP32."""
    guard_action: Literal["hold", "exact"] = "hold"
    """Outside of these: take the anchor's ISD as it is, or compute."""

    @field_validator("guard_low", "guard_high")
    @classmethod
    def _fits_float32(cls, guard: float) -> float:
        if LARGEST_FLOAT32 < guard < math.inf:
            raise ValueError(f"{guard} is beyond FP32; allowed are 0 to {LARGEST_FLOAT32}, and inf")
        return guard

    @model_validator(mode="after")
    def _samples(self) -> Self:
        if self.stride & (self.stride - 1):
            raise ValueError(f"stride = {self.stride} is not a power of two")
        if self.first + self.stride * (self.samples - 1) >= self.n:
            raise ValueError(
                f"first + stride·(n_sub − 1) = {self.first + self.stride * (self.samples - 1)} is beyond the last element "
                f"{self.n - 1}"
            )
        if self.skip and self.keep_isd:
            raise ValueError("skip = true and keep_isd = true: a skipped layer is no anchor")
        return self

    @model_validator(mode="after")
    def _integers(self) -> Self:
        if self.x_scale is not None and not self.int8_input:
            raise ValueError(
                f"x_scale = {self.x_scale}, but input_format = {self.input_format!r}: only INT8 elements have a scale"
            )
        if self.y_scale != 1 and not self.int8_output:
            raise ValueError(
                f"y_scale = {self.y_scale}, but output_format = {self.output_format!r}: only INT8 results have a scale"
            )
        if self.int8_output and "gamma" not in self.affine:
            raise ValueError(
                f"output_format = 'int8' needs a gamma, which the scale is put into, but affine = {self.affine!r}"
            )
        if self.int8_output and self.cast_before_gamma:
            raise ValueError(
                "output_format = 'int8' and cast_before_gamma = true: x-hat is rounded to FP16 for FP16 results alone"
            )
        return self

    @property
    def int8_input(self) -> bool:
        return self.input_format == INT8.name

    @property
    def int8_output(self) -> bool:
        return self.output_format == INT8.name

    @property
    def samples(self) -> int:
        """Elements that enter the statistics (N_sub)."""
        return self.n if self.n_sub is None else self.n_sub

    @staticmethod
    def defaults(configuration: Configuration) -> dict[str, Any]:
        """What a layer of a build has where nothing else is said: its first norm and its first format, which needs a gamma if it is INT8."""
        what = configuration.what
        return {
            "mode": what.norms[0],
            "n_sub": what.n_sub,
            "input_format": what.formats[0],
            "output_format": what.formats[0],
            "affine": "gamma" if what.integer else "none",
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "LayerSettings":
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ConfigurationError(f"layer settings: {sentence(error, 'a layer')}") from None

    def check(self, configuration: Configuration) -> None:
        """Raises ConfigurationError where the build can't do what the layer asks."""
        what = configuration.what
        if self.n > what.max_n:
            raise ConfigurationError(f"n = {self.n} exceeds this build's max_n = {what.max_n}")
        if self.mode not in what.norms:
            raise ConfigurationError(
                f"mode = {self.mode!r}, but this build has norms = {list(what.norms)}"
            )
        for name in ("input_format", "output_format"):
            if getattr(self, name) not in what.formats:
                raise ConfigurationError(
                    f"{name} = {getattr(self, name)!r}, but this build has formats = {list(what.formats)}"
                )
        if self.affine in ("gamma", "gamma+beta") and not what.gamma:
            raise ConfigurationError(
                f"affine = {self.affine!r}, but this build has affine = {what.affine!r}"
            )
        if self.affine in ("beta", "gamma+beta") and not what.beta:
            raise ConfigurationError(
                f"affine = {self.affine!r}, but this build has affine = {what.affine!r}"
            )
        if self.slot >= what.slots:
            raise ConfigurationError(
                f"slot = {self.slot}, but this build has slots 0 to {what.slots - 1}"
            )
        if self.cast_before_gamma and not what.cast_before_gamma:
            raise ConfigurationError(
                "cast_before_gamma = true, but this build has cast_before_gamma = false"
            )
        if (self.skip or self.keep_isd) and not what.skipping:
            name = "skip" if self.skip else "keep_isd"
            raise ConfigurationError(f"{name} = true, but this build has skipping = false")
        if self.skip and self.anchor >= what.layers:
            raise ConfigurationError(
                f"anchor = {self.anchor}, but this build has layers 0 to {what.layers - 1}"
            )
        if self.samples != self.n and not what.subsampling:
            raise ConfigurationError(
                f"n_sub = {self.n_sub} of n = {self.n}, but this build has subsampling = false"
            )

    def record(self, configuration: Configuration) -> dict[str, int]:
        """The fields of the hardware's layer record (`record_layout`)."""
        self.check(configuration)
        numerics = Numerics(configuration)
        samples = self.samples
        square, exponent = inverse_square(samples)
        shift = clog2(samples)
        return {
            "valid": 1,
            "rmsnorm": int(self.mode == "rmsnorm"),
            "n": self.n,
            "n_sub": samples,
            "first": self.first,
            "stride_log2": clog2(self.stride),
            "reciprocal": -(-(1 << (numerics.reciprocal_precision + shift)) // samples),
            "reciprocal_shift": shift,
            "inverse_square": square,
            "inverse_square_exponent": exponent,
            "eps": float32_bits(self.eps),
            "input_format": FORMATS.index(self.input_format),
            "output_format": FORMATS.index(self.output_format),
            "x_scale": 0 if self.x_scale is None else float32_bits(self.x_scale),
            "y_scale": float32_bits(self.y_scale),
            "gamma": int(self.affine in ("gamma", "gamma+beta")),
            "beta": int(self.affine in ("beta", "gamma+beta")),
            "cast_before_gamma": int(self.cast_before_gamma),
            "slot": self.slot,
            "keep_isd": int(self.keep_isd),
            "skip": int(self.skip),
            "anchor": self.anchor,
            "ratio": float32_bits(self.ratio),
            "guard_low": float32_bits(abs(self.guard_low)),
            "guard_high": float32_bits(abs(self.guard_high)),
            "guard_exact": int(self.guard_action == "exact"),
        }


def inverse_square(n: int) -> tuple[int, int]:
    """(r2, x) with 1/n² ≈ r2·2^-(23 + x), 2^23 ≤ r2 < 2^24, r2 rounded to nearest."""
    exponent = clog2(n * n)
    top = VARIANCE_BITS - 1
    rounded = ((1 << (top + exponent + 1)) // (n * n) + 1) >> 1
    if rounded >> VARIANCE_BITS:
        return 1 << top, exponent - 1
    return rounded, exponent


def record_layout(configuration: Configuration) -> dict[str, int]:
    """Names and widths, in bits, of the record of layer settings, in the order of the ports `layer_<name>`."""
    what = configuration.what
    numerics = Numerics(configuration)
    count = numerics.n_bits
    return {
        "valid": 1,
        "rmsnorm": 1,
        "n": count,
        "n_sub": count,
        "first": count,
        "stride_log2": 5,
        "reciprocal": numerics.reciprocal_precision + 1,
        "reciprocal_shift": 5,
        "inverse_square": VARIANCE_BITS,
        "inverse_square_exponent": 6,
        "eps": 32,
        "input_format": 2,
        "output_format": 2,
        "x_scale": 32,
        "y_scale": 32,
        "gamma": 1,
        "beta": 1,
        "cast_before_gamma": 1,
        "slot": what.slot_bits,
        "keep_isd": 1,
        "skip": 1,
        "anchor": what.id_bits,
        "ratio": 32,
        "guard_low": 32,
        "guard_high": 32,
        "guard_exact": 1,
    }
