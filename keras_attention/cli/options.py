"""Command-line options, TOML files and help, all made from a dataclass and its docstring."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from keras_attention.cli.streams import typed_text
from keras_attention.utils.arguments import Depths, FromZero, bare, check, kinds_of, meanings, rules
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


def flag(name: str) -> str:
    """Return the option of an argument: `--beam-size` of `beam_size`."""
    return f"--{name.replace('_', '-')}"


def given(options: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return those of some options that were given, by their names."""
    values = {name: getattr(options, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def adding(group: Any, **always: Any) -> Callable[..., None]:
    """Return a function that adds an option to a parser or a group, by what `--help` shows of it.

    >>> from keras_attention.utils.arguments import Count
    >>> parser = Parser()
    >>> add = adding(parser)
    >>> add("MODEL", "a folder")
    >>> add("--pairs N", "use the first N pairs", Count)
    >>> add("--overwrite", "replace the file")
    >>> parser.parse_args(["runs/demo", "--pairs", "7"])
    Namespace(model='runs/demo', pairs=7, overwrite=False)

    Args:
        group: An argparse parser or a group of one.
        **always: Arguments of `add_argument` for all options.
    """

    def add(shown: str, text: str, kind: Any = None, **more: Any) -> None:
        name, *values = shown.split()
        made = {"help": text, **always, **more}
        if not name.startswith("--"):
            made["metavar"], name = name, name.lower()
        elif len(values) == 1:
            made["metavar"] = values[0]
        elif values:
            made |= {"metavar": tuple(values), "nargs": len(values)}
        elif not {"action", "choices"} & {*made}:
            made["action"] = "store_true"
        if kind is not None:
            made["type"] = _parser_of(name, kind)
        group.add_argument(name, **made)

    return add


def _parser_of(name: str, kind: Any) -> Callable[[str], Any]:
    """Return what parses an option's word and, by its annotation, checks it."""
    if typing.get_origin(kind) is not Annotated:
        return kind

    def parse(text: str) -> Any:
        value = bare(kind)(text)
        try:
            return check(name, value, kind)
        except ValueError as error:
            said = str(error).removeprefix(f"`{name}` ")
            raise argparse.ArgumentTypeError(said) from None

    parse.__name__ = bare(kind).__name__  # argparse names it in errors
    return parse


def add_options(
    group: Any,
    cls: type,
    names: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Add an option for every field of a class; what is not given leaves no trace in the result.

    The class is a dataclass or a `TypedDict` whose docstring describes every field; `names` are those wanted,
    in the order of the help. `defaults` are what the help says is taken in place of a field's default.
    """
    help_of = meanings(cls)
    for name in rules(cls) if names is None else names:
        default = (defaults or {}).get(name, getattr(cls, name, None))
        # Without docstrings, as under `python -OO`, options have no help.
        text = help_of.get(name, "").rstrip(".").replace("`", "")
        text = text[:1].lower() + text[1:]
        shown = "" if default in (None, ()) else f" ({_as_text(default)})"
        flags = [flag(name), *(aliases or {}).get(name, ())]
        group.add_argument(
            *flags,
            dest=name,
            default=argparse.SUPPRESS,
            help=f"{text}{shown}".replace("%", "%%"),
            **_kind(rules(cls)[name]),
        )


def read_toml(
    path: Path, known: Mapping[str, Any], inner: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings in a TOML file, checked by the annotations of those that are known.

    `inner` has the annotations of what may stand in a table.

    Raises:
        ValueError: If it is not TOML, or has a setting that is unknown or wrong.
    """
    if not path.exists() or path.is_dir():
        raise FileNotFoundError(f"--config: there is no file '{path}'.")
    try:
        values = tomllib.loads(path.read_text("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"--config: '{path}' is not TOML: {error}") from None
    return _typed(f"--config: '{path}'", values, known, inner or {})


def _typed(
    where: str,
    values: Mapping[str, Any],
    known: Mapping[str, Any],
    inner: Mapping[str, Any],
    outer: str = "",
) -> dict[str, Any]:
    """Values of a TOML file or of a table in it."""
    typed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            hint = did_you_mean(name, sorted(known))
            raise ValueError(f"{where} has an unknown setting: {outer}{name}.{hint}")
        is_optional = type(None) in kinds_of(known[name])
        if value == NONE and is_optional:
            typed[name] = None
            continue
        try:
            if isinstance(value, str) and not value.strip():
                raise ValueError(f"`{name}` must not be empty. Received: {name}={value!r}")
            typed[name] = check(name, value, known[name])
        except ValueError as error:
            hint = f" Or give {json.dumps(NONE)}." if is_optional else ""
            raise ValueError(f"{where}: {error}{hint}") from None
        if isinstance(value, dict):
            typed[name] = _typed(where, value, inner, {}, f"{name}.")
    return typed


def as_toml(values: Mapping[str, Any]) -> str:
    """Return settings as TOML that `read_toml` reads: None is "none", since TOML has no such value.

    >>> print(as_toml({"steps": 9, "minutes": None, "model_arguments": {"dropout": 0.1}}), end="")
    steps = 9
    minutes = "none"
    model_arguments = {dropout = 0.1}
    """
    return "".join(f"{name} = {_toml(value)}\n" for name, value in values.items())


def _toml(value: Any) -> str:
    if value is None:
        return json.dumps(NONE)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + "}"
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _kind(rule: Any) -> dict[str, Any]:
    """Return what argparse needs to know of an annotation."""
    kinds = [bare(kind) for kind in kinds_of(rule)]
    optional = type(None) in kinds
    (kind,) = (kind for kind in kinds if kind is not type(None))
    origin, parts = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is typing.Literal:
        shown = [*parts, NONE] if optional else [*parts]
        choices = [*parts, None] if optional else shown
        return {"type": _or_none(str, optional), "choices": choices, "metavar": "|".join(shown)}
    if kind == bare(Depths) or parts == (FromZero, FromZero):
        return {"nargs": "+", "type": _numbers, "action": _OneOrTwo, "metavar": "N"}
    if parts == (str, ...):
        return {"nargs": "+", "type": _or_none(typed_text, False), "metavar": "TEXT"}
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if origin is tuple:
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


def _or_none(kind: Any, optional: bool) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        return None if optional and text == NONE else kind(text)

    parse.__name__ = "str" if kind is typed_text else kind.__name__  # argparse names it in errors
    return parse


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
