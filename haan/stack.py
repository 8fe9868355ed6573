# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The tensors of a stack of layers, as `haan simulate --layers` reads them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .config import Configuration, ConfigurationError
from .layer import LayerSettings
from .layers import LayerTable
from .scaling import Parameter, written
from .tensors import Array, Rows, integer_rows, load, parameter_array, rows_array, scalar

KINDS = ("x", "x_scale", "gamma", "beta")
ALLOWED = (
    "x.K, x_scale.K, gamma.K and beta.K for layers K; x, x_scale, gamma and beta of all layers; "
    "tokens; one_plus_gamma"
)


@dataclass(frozen=True, eq=False)
class Stack:
    """Rows of every layer of a table, checked against it and against a configuration."""

    table: LayerTable
    x: Mapping[int, Rows]
    """Layer -> (rows, N); the same rows for all."""
    x_scale: Mapping[int, NDArray[np.float32]]
    """Layer -> (rows,), what the INT8 elements of each row are multiplied by; 1 for FP16."""
    gamma: Mapping[int, Array]
    """Slot -> (N,), float16 or float32: the build's parameter format, or, for INT8 results, as given."""
    beta: Mapping[int, Array]
    """As gamma."""
    one_plus_gamma: bool
    """gamma is an offset from one."""
    tokens: NDArray[np.int64]
    """(rows,), the token slot of each row."""
    written: Mapping[int, Mapping[Parameter, tuple[Array, bool]]]
    """Slot -> what is written to it, and whether it is an offset from one."""

    @classmethod
    def read(cls, path: Path, table: LayerTable, configuration: Configuration) -> "Stack":
        """Reads `x.K` (rows, N), `gamma.K` and `beta.K` (N,) for each layer K; or `x` (layers, rows, N), `gamma` and `beta` (layers, N);
        optional `tokens` (rows,) and the scalar `one_plus_gamma`.

        Numbers are as for `Tensors.read`. For layers with INT8 input `x.K` is int8, with `x_scale.K`, a number or (rows,), unless the table
        has it; or numbers, which become INT8 (`haan.scaling.quantized`). Raises ConfigurationError with the file's name for anything else.
        """
        table.check(configuration)
        arrays = load(path)
        try:
            return cls._checked(arrays, table, configuration)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def _checked(
        cls, arrays: dict[str, Array], table: LayerTable, configuration: Configuration
    ) -> "Stack":
        tokens = arrays.pop("tokens", None)
        one_plus_gamma = bool(
            scalar("one_plus_gamma", arrays.pop("one_plus_gamma", np.array(False)))
        )
        if one_plus_gamma and not configuration.what.one_plus_gamma:
            raise ConfigurationError(
                "one_plus_gamma = true, but this build has one_plus_gamma = false"
            )
        found = _by_layer(arrays, table)
        x, x_scale = _rows(found, table)
        count = len(next(iter(x.values())))
        scales = _divisors(table)
        width = configuration.what.parameter_format
        gamma, beta = (
            _by_slot(kind, found[kind], table, width, scales) for kind in ("gamma", "beta")
        )
        if one_plus_gamma and not gamma:
            raise ConfigurationError("one_plus_gamma = true needs a gamma, but no layer has one")
        tokens = _tokens(tokens, count, configuration.what.token_slots)
        sizes = {slot: len(vector) for slot, vector in sorted((beta | gamma).items())}
        vectors = {
            slot: written(
                gamma.get(slot), beta.get(slot), n, scales.get(slot), configuration, one_plus_gamma
            )
            for slot, n in sizes.items()
        }
        return cls(table, x, x_scale, gamma, beta, one_plus_gamma, tokens, vectors)


def uses(settings: LayerSettings, kind: str) -> bool:
    """Whether a layer can have an array of `KINDS`."""
    if kind == "x_scale":
        return settings.int8_input and settings.x_scale is None
    return kind == "x" or kind in settings.affine.split("+")


def _by_layer(arrays: Mapping[str, Array], table: LayerTable) -> dict[str, dict[int, Array]]:
    """Kind -> layer -> its array."""
    found: dict[str, dict[int, Array]] = {kind: {} for kind in KINDS}
    for name, array in arrays.items():
        match = re.fullmatch(r"(x|x_scale|gamma|beta)\.(0|[1-9][0-9]{0,2})", name)
        if match:
            kind, layer = match[1], int(match[2])
            if layer not in table.settings:
                raise ConfigurationError(f"array {name!r}: {table.origin} has no layer {layer}")
            if kind in arrays:
                raise ConfigurationError(f"{kind} and {name} are both there; allowed is either")
            if not uses(table.settings[layer], kind):
                settings = table.settings[layer]
                asks = f"affine = {settings.affine!r}"
                if kind == "x_scale":
                    asks = f"input_format = {settings.input_format!r}, x_scale = {settings.x_scale}"
                raise ConfigurationError(f"array {name!r}: {table.label(layer)} has {asks}")
            found[kind][layer] = array
        elif name in KINDS:
            found[name] = _split(name, array, table)
        else:
            raise ConfigurationError(f"array {name!r} is not known; there are: {ALLOWED}")
    return found


def _split(kind: str, array: Array, table: LayerTable) -> dict[int, Array]:
    """An array of all layers, in their order, as one for each layer that uses it."""
    axes = {"x": "(layers, rows, N)", "x_scale": "(layers, rows)"}.get(kind, "(layers, N)")
    count = len(table.settings)
    if array.ndim != axes.count(",") + 1 or len(array) != count:
        raise ConfigurationError(
            f"{kind} has shape {array.shape}, but must be {axes} with the {count} layers of {table.origin}"
        )
    layers = zip(table.settings.items(), array, strict=True)
    return {layer: each for (layer, settings), each in layers if uses(settings, kind)}


def _rows(
    given: Mapping[str, Mapping[int, Array]], table: LayerTable
) -> tuple[dict[int, Rows], dict[int, NDArray[np.float32]]]:
    """Layer -> its rows; layer -> what the elements of each are multiplied by."""
    found: dict[int, Rows] = {}
    scales: dict[int, NDArray[np.float32]] = {}
    for layer, settings in table.settings.items():
        if layer not in given["x"]:
            raise ConfigurationError(
                f"array x.{layer} (rows, N) is missing, and {table.origin} has {table.label(layer)}"
            )
        x, scales[layer] = _layer_rows(
            layer, given["x"][layer], given["x_scale"].get(layer), settings
        )
        found[layer] = x
        first = next(iter(found))
        if x.shape[1] != settings.n:
            raise ConfigurationError(
                f"x.{layer} has rows of {x.shape[1]} elements, but {table.label(layer)} has n = {settings.n}"
            )
        if len(x) != len(found[first]):
            raise ConfigurationError(
                f"x.{layer} has {len(x)} rows, but x.{first} has {len(found[first])}; allowed is the same number for all layers"
            )
    return found, scales


def _layer_rows(
    layer: int, x: Array, x_scale: Array | None, settings: LayerSettings
) -> tuple[Rows, NDArray[np.float32]]:
    if not settings.int8_input:
        rows = rows_array(f"x.{layer}", x)
        return rows, np.ones(len(rows), np.float32)
    own = settings.x_scale
    if own is not None and x.dtype == np.int8:
        x_scale = np.array(own)
    return integer_rows(x, x_scale, f".{layer}", own)


def _divisors(table: LayerTable) -> dict[int, float]:
    """Slot -> y_scale of the layers with INT8 results that use it."""
    found: dict[int, float] = {}
    first: dict[int, int] = {}
    for layer, settings in table.settings.items():
        if settings.affine == "none":
            continue
        slot, mine = settings.slot, settings.y_scale if settings.int8_output else None
        other = first.setdefault(slot, layer)
        if other != layer and mine != found.get(slot):
            told = " and ".join(
                f"{table.label(each)} has output_format = {asked.output_format!r}, y_scale = {asked.y_scale}"
                for each, asked in ((other, table.settings[other]), (layer, settings))
            )
            raise ConfigurationError(
                f"{told}, but both have slot = {slot}, whose gamma is divided by y_scale; allowed are different slots"
            )
        if mine is not None:
            found[slot] = mine
    return found


def _by_slot(
    kind: str,
    given: Mapping[int, Array],
    table: LayerTable,
    parameter_format: str,
    scales: Mapping[int, float],
) -> dict[int, Array]:
    """Slot -> its vector. What is divided before it is written may have any FP32 value."""
    found: dict[int, Array] = {}
    giver: dict[int, int] = {}
    for layer, array in given.items():
        settings = table.settings[layer]
        width = "fp32" if settings.slot in scales else parameter_format
        vector = parameter_array(f"{kind}.{layer}", array, settings.n, width)
        other = giver.setdefault(settings.slot, layer)
        first = found.setdefault(settings.slot, vector)
        if first.tobytes() != vector.tobytes():
            raise ConfigurationError(
                f"{kind}.{layer} is not {kind}.{other}, but both layers have slot = {settings.slot}; "
                "allowed are equal vectors, or different slots"
            )
    for layer, settings in table.settings.items():
        if not uses(settings, kind):
            continue
        if settings.slot not in found:
            raise ConfigurationError(
                f"array {kind}.{layer} (N,) is missing, and {table.label(layer)} has affine = {settings.affine!r}"
            )
        size = len(found[settings.slot])
        if size != settings.n:
            raise ConfigurationError(
                f"{kind}.{giver[settings.slot]} has {size} elements, but {table.label(layer)} of the same slot has n = {settings.n}"
            )
    return found


def _tokens(given: Array | None, rows: int, slots: int) -> NDArray[np.int64]:
    if given is None:
        if rows > slots:
            raise ConfigurationError(
                f"there are {rows} rows, but this build has token_slots = {slots}; allowed is a slot for each row"
            )
        return np.arange(rows)
    if given.shape != (rows,) or given.dtype.kind not in "iu":
        raise ConfigurationError(
            f"tokens is {given.dtype} of shape {given.shape}, but must be integers of shape ({rows},): a slot for each row"
        )
    for place, token in enumerate(given.tolist()):
        if not 0 <= token < slots:
            raise ConfigurationError(
                f"tokens[{place}] = {token}, but this build has token slots 0 to {slots - 1}"
            )
        if token in given[:place]:
            raise ConfigurationError(
                f"tokens[{place}] = {token} is there already; allowed is a slot of its own for each row"
            )
    return given.astype(np.int64)
