"""Command-line options and their help, made from a dataclass and its docstring."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from keras_attention.cli.streams import typed_text
from keras_attention.recipes.config import literal_choices
from keras_attention.utils.checks import did_you_mean

NONE = "none"


class Parser(argparse.ArgumentParser):
    """A parser of a command: no option goes by half a name, and of a misspelt one it says what is meant."""

    def __init__(self, **arguments: Any) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(**{"formatter_class": layout, "allow_abbrev": False, **arguments})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse empty arguments, as unset variables of a shell make them: `Path("")` is the folder "."."""
        given = [str(word) for word in (sys.argv[1:] if args is None else args)]
        for before, word in zip(["", *given], given, strict=False):
            if not word.strip() or re.fullmatch(r"--[\w-]+=\s*", word):
                name = before if not word.strip() else word
                self.error(f"an argument is empty, after '{name}'. Is a shell variable not set?")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End with the usage and a message; argparse calls it."""
        for word in message.split() if message.startswith("unrecognized") else ():
            if word.startswith("--"):
                message += did_you_mean(word.partition("=")[0], self._option_string_actions)
        super().error(message)


def add_options(
    group: Any,
    cls: type,
    names: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Add an option for every field of a dataclass; what is not given leaves no trace in the result.

    Args:
        group: An argparse parser or a group of one.
        cls: The dataclass. Its docstring describes every field.
        names: The fields, in the order of the help; all if not given.
        defaults: What the help says is taken if an option is not given, in place of the field's default.
        aliases: Further names of options.
    """
    help_of = field_help(cls)
    annotations = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in fields if names is None else names:
        default = (defaults or {}).get(name, fields[name].default)
        # Without docstrings, as under `python -OO`, options have no help.
        text = help_of.get(name, "").rstrip(".").replace("`", "")
        text = text[:1].lower() + text[1:]
        shown = "" if default in (None, (), dataclasses.MISSING) else f" ({_as_text(default)})"
        flags = [f"--{name.replace('_', '-')}", *(aliases or {}).get(name, ())]
        group.add_argument(
            *flags,
            dest=name,
            default=argparse.SUPPRESS,
            help=f"{text}{shown}".replace("%", "%%"),
            **_kind(annotations[name]),
        )


def field_help(cls: type) -> dict[str, str]:
    """Return what the docstring of a dataclass says under "Attributes:".

    >>> from keras_attention.recipes.config import TranslationConfig
    >>> field_help(TranslationConfig)["label_smoothing"]
    "The paper's epsilon_ls."
    """
    section = (cls.__doc__ or "").partition("Attributes:")[2]
    entries = re.split(r"\n {8}(?=\w+: )", section)
    pairs = (entry.partition(": ") for entry in entries[1:])
    return {name: " ".join(text.split()) for name, _, text in pairs}


def _kind(annotation: Any) -> dict[str, Any]:
    """Return what argparse needs to know of a type."""
    parts = [part for part in _union(annotation) if part is not type(None)]
    optional = len(parts) < len(_union(annotation))
    choices = literal_choices(annotation)
    if choices:
        shown = [NONE if choice is None else choice for choice in choices]
        return {"type": _or_none(str, optional), "choices": choices, "metavar": "|".join(shown)}
    if tuple[int, int] in parts:
        return {"nargs": "+", "type": _numbers, "action": _OneOrTwo, "metavar": "N"}
    (kind,) = parts
    if kind == tuple[str, ...]:
        return {"nargs": "+", "type": _or_none(typed_text, False), "metavar": "TEXT"}
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(kind) is tuple:
        return {"type": Path, "nargs": 2, "metavar": ("SOURCE", "TARGET")}
    metavar = {int: "N", float: "X", Path: "PATH", str: "TEXT"}[kind]
    parse = typed_text if kind is str else kind
    return {"type": _or_none(parse, optional), "metavar": metavar}


def _numbers(text: str) -> list[int] | None:
    """Return the whole numbers of "6" or "6,2"; None of "none"."""
    return None if text == NONE else [int(number) for number in text.split(",")]


_numbers.__name__ = "int"  # argparse names it in errors


class _OneOrTwo(argparse.Action):
    """Stores one whole number, or a pair of `6 2` or `6,2`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        numbers = [number for part in values if part is not None for number in part]
        if len(numbers) > 2:
            raise argparse.ArgumentError(self, f"expected one number or two, not {len(numbers)}")
        pair = numbers[0] if len(numbers) == 1 else tuple(numbers) or None
        setattr(namespace, self.dest, pair)


def _union(annotation: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def _or_none(kind: Any, optional: bool) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        return None if optional and text == NONE else kind(text)

    parse.__name__ = "str" if kind is typed_text else kind.__name__  # argparse names it in errors
    return parse


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
