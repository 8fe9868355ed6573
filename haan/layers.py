# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The layer table as a file, `layers.toml`: the settings of every layer of a model by its number, TID.

table = LayerTable.read("layers.toml")
table.check(configuration)
table.settings[3]                   # LayerSettings
table.records(configuration)[3]     # what the hardware is given
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from .config import (
    SCHEMA,
    Configuration,
    ConfigurationError,
    read_toml,
    require_known_schema,
    sentence,
)
from .layer import LayerSettings

LONGEST_NAME = 100


class Layer(LayerSettings):
    """A layer of a model: where it stands in the table, and its settings."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    layer: Annotated[int, Field(ge=0, le=255)] | None = None
    """Its number, TID. Unset: one more than that of the layer before, from 0 on."""
    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)] | None = None
    """Label in reports."""

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str | None) -> str | None:
        if name is not None and not name.isprintable():
            raise ValueError(f"{name!r} has a letter that can't be printed")
        return name


class LayersFile(BaseModel):
    """What stands in a `layers.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    schema_: Annotated[int, Field(alias="schema", ge=1, le=SCHEMA)] = SCHEMA
    """Version of this format. A newer one than haan knows is refused."""
    layer: Annotated[tuple[Layer, ...], Field(json_schema_extra={"minItems": 1})] = ()
    """The layers."""

    @field_validator("schema_", mode="before")
    @classmethod
    def _known_schema(cls, value: Any) -> Any:
        return require_known_schema(value)


@dataclass(frozen=True)
class LayerTable:
    """The layers of a model."""

    settings: Mapping[int, LayerSettings]
    """By number, in its order. The anchors of others have `keep_isd`."""
    names: Mapping[int, str]
    """Of those that have one."""
    origin: str = field(default="layers", compare=False)
    """Where it comes from, for messages."""

    @classmethod
    def read(cls, path: str | Path) -> "LayerTable":
        """Reads a file; ConfigurationError with one sentence for what is wrong with it."""
        return cls.from_dict(read_toml(path), str(path))

    @classmethod
    def from_dict(cls, data: dict[str, Any], origin: str = "layers") -> "LayerTable":
        """The same of plain data."""
        labels = _labels(data)

        def place(loc: tuple[int | str, ...]) -> str:
            if len(loc) < 2 or not isinstance(loc[1], int):
                return ".".join(map(str, loc))
            return ": ".join((labels[loc[1]], *(map(str, loc[2:]))))

        fields = f"a layer; there are: {', '.join(Layer.model_fields)}"
        if set(data) - {"schema", "layer"}:
            fields = "this file; there are: schema, layer"
        try:
            # As JSON, because types are strict there and lists are tuples nevertheless.
            file = LayersFile.model_validate_json(json.dumps(data, default=str), strict=True)
        except ValidationError as error:
            raise ConfigurationError(f"{origin}: {sentence(error, fields, place)}") from None
        if not file.layer:
            raise ConfigurationError(
                f"{origin}: there is no [[layer]] table; allowed is one or more"
            )
        layers: dict[int, Layer] = {}
        number = -1
        for layer, label in zip(file.layer, labels, strict=True):
            number = number + 1 if layer.layer is None else layer.layer
            if number in layers:
                raise ConfigurationError(
                    f"{origin}: {label}: layer = {number} is there already; allowed is one table for each"
                )
            layers[number] = layer
        names = {number: layer.name for number, layer in layers.items() if layer.name is not None}
        settings = {
            number: LayerSettings(**layers[number].model_dump(exclude={"layer", "name"}))
            for number in sorted(layers)
        }
        table = cls(settings, names, origin)
        table._check_anchors({number for number in layers if _names_anchor(layers[number])})
        anchors = {each.anchor for each in settings.values() if each.skip}
        kept = {
            number: each.model_copy(update={"keep_isd": each.keep_isd or number in anchors})
            for number, each in settings.items()
        }
        return cls(kept, names, origin)

    def label(self, layer: int) -> str:
        """A layer in a sentence."""
        return _label(layer, self.names.get(layer))

    def check(self, configuration: Configuration) -> None:
        """Raises ConfigurationError where the build can't do what a layer asks."""
        layers, places = configuration.what.layers, configuration.what.anchors
        for number, settings in self.settings.items():
            if number >= layers:
                raise self._fault(
                    number, f"layer = {number}, but this build has layers 0 to {layers - 1}"
                )
            try:
                settings.check(configuration)
            except ConfigurationError as error:
                raise self._fault(number, str(error)) from None
            if settings.skip:
                between = range(settings.anchor + places, number, places)
                for other in between:
                    if other in self.settings and self.settings[other].keep_isd:
                        raise self._fault(
                            number,
                            f"anchor = {settings.anchor}, but layer {other} keeps its ISDs in the same place before they are "
                            f"used: this build has anchors = {places}; a build with more of them, or another anchor, works",
                        )

    def records(self, configuration: Configuration) -> dict[int, dict[str, int]]:
        """The hardware's record of each layer, checked."""
        self.check(configuration)
        return {number: each.record(configuration) for number, each in self.settings.items()}

    def exact(self) -> dict[int, LayerSettings]:
        """The settings with which every row computes its ISD from all of its elements."""
        plain = {"skip": False, "keep_isd": False, "n_sub": None, "first": 0, "stride": 1}
        return {number: each.model_copy(update=plain) for number, each in self.settings.items()}

    @property
    def subsampled(self) -> list[int]:
        """Layers whose statistics come from a part of the elements."""
        return [number for number, each in self.settings.items() if each.samples != each.n]

    def to_list(self) -> list[dict[str, Any]]:
        """Every layer with all of its fields, as JSON can hold them."""
        layers = [
            Layer(**each.model_dump(), layer=number, name=self.names.get(number))
            for number, each in self.settings.items()
        ]
        return [json.loads(layer.model_dump_json()) for layer in layers]

    def digest(self) -> str:
        """SHA-256 of the settings: equal for equal tables, whatever the names."""
        text = json.dumps([layer | {"name": None} for layer in self.to_list()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _fault(self, layer: int, text: str) -> ConfigurationError:
        return ConfigurationError(f"{self.origin}: {self.label(layer)}: {text}")

    def _check_anchors(self, named: set[int]) -> None:
        """Every skipped layer names an anchor that comes before it and computes its ISD."""
        for number, settings in self.settings.items():
            if not settings.skip:
                continue
            anchor = settings.anchor
            if number not in named:
                raise self._fault(
                    number, "skip = true, but anchor is missing; allowed is a layer before it"
                )
            if anchor == number:
                fault = "is the layer itself"
            elif anchor not in self.settings:
                fault = "is not in this file"
            elif anchor > number:
                fault = "comes after the layer"
            elif self.settings[anchor].skip:
                fault = "is itself skipped"
            else:
                continue
            allowed = [n for n, each in self.settings.items() if n < number and not each.skip]
            raise self._fault(
                number,
                f"anchor = {anchor} {fault}; allowed is a layer before it that computes its ISD: {_list(allowed)}",
            )


def _names_anchor(layer: Layer) -> bool:
    return "anchor" in layer.model_fields_set


def _list(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[-8:]]
    return ("..., " if len(numbers) > 8 else "") + ", ".join(shown) if numbers else "there is none"


def _label(number: int, name: object) -> str:
    short = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME
    return f"layer {number} ({name})" if short else f"layer {number}"


def _labels(data: Mapping[str, Any]) -> list[str]:
    """What to call each table of a file that may be wrong in any way."""
    labels, number = [], -1
    tables = data.get("layer")
    for table in tables if isinstance(tables, list) else []:
        known: Mapping[str, Any] = table if isinstance(table, dict) else {}
        given = known.get("layer")
        number = given if type(given) is int else number + 1
        labels.append(_label(number, known.get("name")))
    return labels
