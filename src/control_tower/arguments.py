"""Arguments given as `key=value`: modelled on a signature, read by its annotations, typos refused."""

import collections.abc
import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import pydantic
import yaml

from control_tower.errors import UsageError, did_you_mean

M = TypeVar("M", bound=pydantic.BaseModel)

_COLLECTIONS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
_OBJECTS = (dict, collections.abc.Mapping)


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument, as listings and the reference show it."""

    name: str
    type: str
    required: bool
    default: Any
    description: str


def parse_key_values(items: Sequence[str], label: str) -> dict[str, str]:
    """Split `key=value` items at their first equals sign.

    Args:
        items: what was typed, in order.
        label: the option, for messages, such as `--policy-arg`.

    Raises:
        UsageError: no equals sign, an empty key, or a key given twice.
    """
    values: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise UsageError(f"{label} {item!r}: write it as key=value")
        if key in values:
            raise UsageError(f"{label}: {key!r} is given twice")
        values[key] = value
    return values


def arguments_model(function: Callable[..., Any], name: str) -> type[pydantic.BaseModel]:
    """The arguments of a function as a model: defaults included, unknown ones forbidden.

    Positional-only and variadic parameters are left out. Descriptions come from the `Args:` part of
    the docstring.

    Args:
        function: a function or class with annotations that can be resolved where it stands.
        name: a name for the model.
    """
    docs = _documented(function)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        annotation = parameter.annotation
        if annotation is parameter.empty:
            annotation = Any if default in (..., None) else cast("type[Any]", type(default))
        description = docs.get(parameter.name)
        fields[parameter.name] = (annotation, pydantic.Field(default=default, description=description))
    config = pydantic.ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, protected_namespaces=(), allow_inf_nan=False
    )
    return pydantic.create_model(re.sub(r"\W", "_", name), __config__=config, **fields)


def describe_arguments(model: type[pydantic.BaseModel]) -> list[Argument]:
    """The fields of a model, in order."""
    return [
        Argument(
            name=name,
            type=_type_name(field.annotation),
            required=field.is_required(),
            default=None if field.is_required() else field.get_default(call_default_factory=True),
            description=" ".join((field.description or "").split()),
        )
        for name, field in model.model_fields.items()
    ]


def parse_arguments(model: type[M], raw: Mapping[str, Any], owner: str) -> M:
    """Check arguments against a model and fill in its defaults.

    Args:
        model: what may be given.
        raw: values by key. Text is read by the field's annotation (numbers and booleans as usual, lists
            and objects as YAML, a list also as `a,b`); other values are checked as they are. Hyphens in
            keys are underscores.
        owner: whose arguments these are, for messages, such as `policy ct/scripted`.

    Raises:
        UsageError: an unknown, missing, repeated or unreadable argument.
    """
    values: dict[str, Any] = {}
    for key, value in raw.items():
        name = key.replace("-", "_")
        field = model.model_fields.get(name)
        if field is None:
            raise UsageError(f"{owner} has no argument {key!r}{did_you_mean(key, model.model_fields)}")
        if name in values:
            raise UsageError(f"{owner}: argument {name!r} is given twice")
        values[name] = _read(field.annotation, value, f"{owner}: {name}") if isinstance(value, str) else value
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise UsageError(f"{owner}: {_first_problem(model, error)}") from error


def _read(annotation: Any, text: str, label: str) -> Any:
    """What a typed text means for an annotation; texts that mean themselves are left to the model."""
    choices = _alternatives(annotation)
    for choice in choices:
        if get_origin(choice) is Literal:
            for value in get_args(choice):
                if str(value) == text:
                    return value
    takes_text = any(choice in (str, Any) for choice in choices)
    if type(None) in choices and not takes_text and text.lower() in ("none", "null"):
        return None
    structured = [choice for choice in choices if _is_structured(choice)]
    if not structured:
        return text
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        if takes_text:
            return text
        raise UsageError(f"{label}: {text!r} is not YAML") from error
    if isinstance(value, list | dict):
        return cast("Any", value)
    if takes_text or len(structured) < len([choice for choice in choices if choice is not type(None)]):
        return text
    if any((get_origin(choice) or choice) in _COLLECTIONS for choice in structured):
        return [yaml.safe_load(part) for part in text.split(",")] if text.strip() else []
    return value


def _alternatives(annotation: Any) -> list[Any]:
    """The members of a union, without `Annotated` around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [choice for member in get_args(annotation) for choice in _alternatives(member)]
    return [annotation]


def _is_structured(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    if origin in _COLLECTIONS or origin in _OBJECTS or dataclasses.is_dataclass(origin):
        return True
    return isinstance(origin, type) and (issubclass(origin, pydantic.BaseModel | dict))


def _documented(function: Callable[..., Any]) -> dict[str, str]:
    """Descriptions of arguments by name, from the `Args:` part of a docstring."""
    docs: dict[str, str] = {}
    part = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)*)", inspect.getdoc(function) or "", re.MULTILINE)
    if part:
        for match in re.finditer(r"^ {4}(\w+)(?: \(.*?\))?: (.*(?:\n {5,}.*)*)", part[1], re.MULTILINE):
            docs[match[1]] = " ".join(match[2].split())
    return docs


def _type_name(annotation: Any) -> str:
    """An annotation as people read it: `int | none`, `max | mean`, `list of str`."""
    names: list[str] = []
    for choice in _alternatives(annotation):
        origin, args = get_origin(choice), get_args(choice)
        if choice is type(None):
            names.append("none")
        elif choice is Any:
            names.append("any")
        elif origin is Literal:
            names += [str(value) for value in args]
        elif origin in _COLLECTIONS and args:
            names.append(f"list of {_type_name(args[0])}")
        elif (origin or choice) in _OBJECTS:
            names.append("object")
        else:
            names.append(str(getattr(origin or choice, "__name__", choice)))
    return " | ".join(dict.fromkeys(names))


def _first_problem(model: type[pydantic.BaseModel], error: pydantic.ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    if not first["loc"]:
        return first["msg"].removeprefix("Value error, ")
    name = str(first["loc"][0])
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return f"argument {name!r} is missing"
    given = str(first["input"])[:80]
    if sum(problem["loc"][:1] == first["loc"][:1] for problem in problems) > 1 and name in model.model_fields:
        return f"argument {name!r} is {given!r}, not {_type_name(model.model_fields[name].annotation)}"
    return f"argument {'.'.join(map(str, first['loc']))!r} is {given!r}: {first['msg']}"
