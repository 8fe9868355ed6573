# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The tensors that `haan simulate` reads, from .npz or .safetensors files, and writes, as .npz files."""

import lzma
import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .config import Configuration, ConfigurationError
from .formats import FP16, INT8
from .golden import Reference, reference
from .layer import LayerSettings
from .scaling import Parameter, quantized, result_scale, written
from .tools import tool

Array = NDArray[Any]
Rows = NDArray[np.float16] | NDArray[np.int8]

SETTINGS = ("mode", "eps", "n_sub", "first", "stride", "cast_before_gamma")
"""Scalars that are layer settings as they are."""
FORMATS = ("format", "out_format")
SCALES = ("x_scale", "y_scale")
LARGEST_FILE = 1 << 30
"""Bytes that an input file may unpack to."""
_UNSOUND = (
    *(ValueError, TypeError, LookupError, EOFError, MemoryError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)
"""What numpy and zipfile raise for files that are not sound."""
ARRAYS = ("x", "gamma", "beta")
KNOWN = (*ARRAYS, *SETTINGS, "one_plus_gamma", *FORMATS, *SCALES)


@dataclass(frozen=True, eq=False)
class Tensors:
    """Rows to normalize, and what to do with them, checked against a configuration."""

    x: Rows
    """(rows, N)"""
    x_scale: NDArray[np.float32]
    """(rows,), what the INT8 elements of each row are multiplied by; 1 for FP16."""
    gamma: Array | None
    """(N,), float16 or float32: the build's parameter format, or, for INT8 results, as given."""
    beta: Array | None
    """(N,), as gamma."""
    one_plus_gamma: bool
    """gamma is an offset from one."""
    settings: LayerSettings
    written: dict[Parameter, tuple[Array, bool]]
    """"gamma" or "beta" -> what is written to the hardware, and whether it is an offset from one."""

    @classmethod
    def read(cls, path: Path, configuration: Configuration) -> "Tensors":
        """Reads `x` (rows, N), optional `gamma` and `beta` (N), and scalars: `SETTINGS`, `one_plus_gamma`, `FORMATS`.

        Numbers are float16, or float32 with values that the build's format holds exactly. INT8: `x` int8 with `x_scale`, a number or
        (rows,); `out_format` "int8" with a number `y_scale`, by which gamma and beta are divided. For builds with INT8 alone numbers become
        INT8 (`haan.scaling.quantized`), and there may be no y_scale (`haan.scaling.result_scale`). Raises ConfigurationError with the file's
        name for anything else.
        """
        arrays = load(path)
        try:
            return cls._checked(arrays, configuration)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def _checked(cls, arrays: dict[str, Array], configuration: Configuration) -> "Tensors":
        unknown = sorted(arrays.keys() - set(KNOWN))
        if unknown:
            raise ConfigurationError(
                f"array {unknown[0]!r} is not known; there are: {', '.join(KNOWN)}"
            )
        what = configuration.what
        for name in FORMATS:
            if name in arrays and scalar(name, arrays[name]) not in what.formats:
                raise ConfigurationError(
                    f"{name} = {scalar(name, arrays[name])!r}, but this build has formats = {list(what.formats)}"
                )
        if "x" not in arrays:
            there = ", ".join(arrays) or "none"
            raise ConfigurationError(f"array x (rows, N) is missing; arrays in the file: {there}")
        x, x_scale = _elements(arrays, configuration)
        n = x.shape[1]
        given = {name: scalar(name, arrays[name]) for name in SETTINGS if name in arrays}
        given |= _formats(arrays, configuration)
        if "x_scale" in arrays and not arrays["x_scale"].ndim and x_scale[0]:
            given["x_scale"] = float(x_scale[0])
        n_sub = given.get("n_sub", what.n_sub)
        if isinstance(n_sub, int) and n_sub > n:
            raise ConfigurationError(
                f"n_sub = {n_sub} elements should enter the statistics, but a row of x has only {n}"
            )
        integers = given["output_format"] == INT8.name
        # What is divided before it is written may have any value.
        width = "fp32" if integers else what.parameter_format
        gamma, beta = (
            parameter_array(name, arrays[name], n, width) if name in arrays else None
            for name in ("gamma", "beta")
        )
        one_plus_gamma = bool(
            scalar("one_plus_gamma", arrays.get("one_plus_gamma", np.array(False)))
        )
        if one_plus_gamma and not (what.one_plus_gamma or integers):
            raise ConfigurationError(
                "one_plus_gamma = true, but this build has one_plus_gamma = false"
            )
        if one_plus_gamma and gamma is None:
            raise ConfigurationError("one_plus_gamma = true needs an array gamma, which is missing")
        parts = [name for name in ("gamma", "beta") if name in arrays]
        if integers and gamma is None:
            parts.insert(0, "gamma")  # Ones, which the scale is put into.
        affine = "+".join(parts) or "none"
        defaults = LayerSettings.defaults(configuration)
        settings = LayerSettings.from_dict({**defaults, **given, "n": n, "affine": affine})
        settings.check(configuration)
        if integers and "y_scale" not in given:
            y_scale = _fitting_scale(x, x_scale, gamma, beta, one_plus_gamma, settings)
            settings = settings.model_copy(update={"y_scale": y_scale})
        divisor = settings.y_scale if integers else None
        vectors = written(gamma, beta, n, divisor, configuration, one_plus_gamma)
        return cls(x, x_scale, gamma, beta, one_plus_gamma, settings, vectors)


def exact_rows(
    x: Rows,
    x_scale: NDArray[np.float32],
    gamma: Array | None,
    beta: Array | None,
    one_plus_gamma: bool,
    settings: LayerSettings,
) -> Reference:
    """Rows in float64, divided by y_scale; elements that aren't finite count as 0."""
    options = settings.model_dump(include={"mode", "eps", "n_sub", "first", "stride", "y_scale"})
    options |= {"x_scale": x_scale, "one_plus_gamma": one_plus_gamma}
    finite = np.where(np.isfinite(x), x, x.dtype.type(0))
    with np.errstate(invalid="ignore"):  # Infinite parameters: their elements are NaN.
        return reference(finite, gamma, beta, **options)


def integer_rows(
    x: Array, x_scale: Array | None, layer: str = "", own: float | None = None
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """INT8 rows (rows, N), and what the elements of each are multiplied by: int8 ones with x_scale, or numbers, which become INT8 with `own`
    or, if that is None, with a scale for each row (`haan.scaling.quantized`).

    layer : what follows the names of the arrays in messages
    """
    if x.dtype != np.int8:
        _require_no_scale(x, x_scale, layer)
        return quantized(_finite_array(f"x{layer}", x), own)
    if x_scale is None:
        raise ConfigurationError(
            f"x{layer} is int8, so x_scale{layer}, a number or one for each row, is needed, but missing"
        )
    _require_rows(f"x{layer}", x)
    return cast(NDArray[np.int8], x), _scale_array(f"x_scale{layer}", x_scale, len(x))


def _elements(
    arrays: dict[str, Array], configuration: Configuration
) -> tuple[Rows, NDArray[np.float32]]:
    """Rows in a format of the build; and what the elements of each are multiplied by, 1 for FP16."""
    x, x_scale = arrays["x"], arrays.get("x_scale")
    formats = configuration.what.formats
    if x.dtype == np.int8 and INT8.name not in formats:
        raise ConfigurationError(f"x is int8, but this build has formats = {list(formats)}")
    if x.dtype == np.int8 or (configuration.what.integer and x.dtype.kind == "f"):
        return integer_rows(x, x_scale)
    if x.dtype.kind in "iu" and INT8.name in formats:
        raise ConfigurationError(f"x is {x.dtype}, but must be float16, float32 or int8")
    rows = rows_array("x", x)
    _require_no_scale(x, x_scale)
    return rows, np.ones(len(rows), np.float32)


def _require_no_scale(x: Array, x_scale: Array | None, layer: str = "") -> None:
    if x_scale is not None:
        raise ConfigurationError(
            f"x_scale{layer} is given, but x{layer} is {x.dtype}: only INT8 elements have a scale"
        )


def _fitting_scale(
    x: Rows,
    x_scale: NDArray[np.float32],
    gamma: Array | None,
    beta: Array | None,
    one_plus_gamma: bool,
    settings: LayerSettings,
) -> float:
    """A scale for all results."""
    y = exact_rows(x, x_scale, gamma, beta, one_plus_gamma, settings).y
    factor = gamma + 1 if gamma is not None and one_plus_gamma else gamma
    return result_scale(y, factor, beta)


def _formats(arrays: dict[str, Array], configuration: Configuration) -> dict[str, Any]:
    """Formats and the scale of the output, as settings."""
    integer = configuration.what.integer
    mine = INT8.name if integer or arrays["x"].dtype == np.int8 else FP16.name
    told = scalar("format", arrays["format"]) if "format" in arrays else mine
    if told != mine:
        raise ConfigurationError(
            f"format = {told!r}, but x is {arrays['x'].dtype}, whose format is {mine!r}"
        )
    found: dict[str, Any] = {"input_format": mine}
    found["output_format"] = INT8.name if integer else FP16.name
    if "out_format" in arrays:
        found["output_format"] = scalar("out_format", arrays["out_format"])
    if "y_scale" in arrays:
        y_scale = scalar("y_scale", arrays["y_scale"])
        _require_scale("y_scale", y_scale, 2.0**-126)
        found["y_scale"] = float(y_scale)
    elif found["output_format"] == INT8.name and not integer:
        raise ConfigurationError(
            "out_format = 'int8' needs y_scale, what an INT8 result is to be multiplied by, which is missing"
        )
    return found


def _scale_array(name: str, given: Array, rows: int) -> NDArray[np.float32]:
    """What INT8 elements are multiplied by, for each row (rows,); ConfigurationError if it is no number, and no (rows,), that may be."""
    if given.shape not in ((), (rows,)):
        raise ConfigurationError(
            f"{name} has shape {given.shape}, but must be a number or ({rows},): one for each row"
        )
    for place, value in enumerate(given.reshape(-1).tolist()):
        _require_scale(f"{name}[{place}]" if given.ndim else name, value, 0.0)
    return np.broadcast_to(given.astype(np.float32), (rows,))


def _require_scale(name: str, value: Any, least: float) -> None:
    """A scale is a positive normal number of FP32, or 0 where that is `least`."""
    smallest, largest = 2.0**-126, float(np.finfo(np.float32).max)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    zero = number and value == least == 0 and math.copysign(1.0, value) > 0
    if not number or not (zero or smallest <= value <= largest):
        allowed = "" if least else "0, and "
        raise ConfigurationError(
            f"{name} = {value!r}: allowed is {allowed}{smallest:.8g} to {largest:.8g}"
        )


def write(path: Path, **arrays: Array) -> None:
    """Writes an .npz file under exactly this name; raises ConfigurationError if it can't.

    For rows: y (rows, N); cycles (rows,), from the first input beat to each row's last output beat; flags (rows,),
    `haan.flags.RowFlag`; y_scale, what y is to be multiplied by, if it is INT8. For layers K of a stack the same as y.K, cycles.K, flags.K and
    y_scale.K. In builds with
    `statistics_stream` also mean and isd (rows,), FP32.
    """
    try:
        with path.open("wb") as file:
            np.savez(file, **cast(dict[str, Any], arrays))
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be written: {error.strerror or error}") from None


def load(path: Path) -> dict[str, Array]:
    """The arrays of a file; a name that ends with .safetensors tells the one format, any other is .npz."""
    kind = "safetensors" if path.suffix == ".safetensors" else "npz"
    try:
        return _safetensors(path) if kind == "safetensors" else _npz(path)
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror or error}") from None
    except _UNSOUND as error:
        raise ConfigurationError(f"{path}: is not a sound .{kind} file: {error}") from None


def _npz(path: Path) -> dict[str, Array]:
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not a zip archive")
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST_FILE:
            raise ValueError(f"unpacked it has {size} bytes, more than {LARGEST_FILE}")
        file.seek(0)
        with (
            warnings.catch_warnings(action="ignore"),  # What numpy reads nevertheless is good.
            np.load(file, allow_pickle=False) as members,
        ):
            for name in members.files:
                if members.files.count(name) > 1:
                    raise ValueError(f"{name!r} is in it more than once")
            arrays = {name: members[name] for name in members.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name!r} in it is not an array")
    return arrays


def _safetensors(path: Path) -> dict[str, Array]:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load as loaded
    except ImportError:
        raise ConfigurationError(
            f"{path}: safetensors is not installed; this installs it: {tool('safetensors').install}"
        ) from None
    with path.open("rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"it has more than {LARGEST_FILE} bytes")
    try:
        return loaded(data)
    except SafetensorError as error:
        raise ValueError(error) from None
    except KeyError as error:
        raise ValueError(f"numpy has no type {error}; save as F16 or F32") from None


def scalar(name: str, array: Array) -> Any:
    """The value of an array without axes."""
    if array.ndim:
        raise ConfigurationError(f"{name} has shape {array.shape}, but must be a scalar")
    return array.item()


def rows_array(name: str, x: Array) -> NDArray[np.float16]:
    """Rows as FP16; ConfigurationError if they are no (rows, N) of FP16 values."""
    _require_rows(name, x)
    _require_float(name, x)
    half = _half(x)
    where = _differs(x, half)
    if where is not None:
        raise ConfigurationError(
            f"{name}{list(where)} = {x[where]} is not an FP16 value; round {name} yourself: {name}.astype(numpy.float16)"
        )
    return half


def _finite_array(name: str, x: Array) -> Array:
    """Rows that can become INT8; ConfigurationError if they are no (rows, N) of finite numbers."""
    _require_rows(name, x)
    _require_float(name, x)
    wrong = np.argwhere(~np.isfinite(x))
    if len(wrong):
        where = wrong[0].tolist()
        raise ConfigurationError(
            f"{name}{where} = {x[tuple(where)]}, which no INT8 number stands for; allowed are finite numbers"
        )
    return x


def _require_rows(name: str, x: Array) -> None:
    """ConfigurationError if an array is no (rows, N)."""
    if x.ndim != 2 or not x.size:
        raise ConfigurationError(
            f"{name} has shape {x.shape}, but must be (rows, N) with at least one row and one element"
        )


def parameter_array(name: str, array: Array, n: int, parameter_format: str) -> Array:
    """Gamma or beta in the build's format; ConfigurationError if they are no (N,) of its values."""
    if array.shape != (n,):
        raise ConfigurationError(
            f"{name} has shape {array.shape}, but must be ({n},) as a row of x"
        )
    _require_float(name, array)
    if parameter_format == "fp32":
        return array.astype(np.float32)
    half = _half(array)
    where = _differs(array, half)
    if where is not None:
        raise ConfigurationError(
            f"{name}{list(where)} = {array[where]} is not an FP16 value, and this build stores FP16 parameters; "
            'a build with parameter_format = "fp32" takes it'
        )
    return half


def _require_float(name: str, array: Array) -> None:
    if array.dtype not in (np.float16, np.float32):
        raise ConfigurationError(f"{name} is {array.dtype}, but must be float16 or float32")


def _half(array: Array) -> NDArray[np.float16]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return array.astype(np.float16)


def _differs(array: Array, half: NDArray[np.float16]) -> tuple[int, ...] | None:
    """Index of the first element that FP16 doesn't hold."""
    places = np.argwhere((half != array) & ~(np.isnan(half) & np.isnan(array)))
    return tuple(int(i) for i in places[0]) if len(places) else None
