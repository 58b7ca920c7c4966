"""Templates of keys, conditions and projections: what an access pattern declares and checks.

    key = item_key(user_pk(param("userId")), PROFILE)       PK = USER#{userId} AND SK = PROFILE
    F("expiresAt") > param("now")                           expiresAt > :now

A template is made by the code that makes the real keys and conditions, with parameters in place of
values. `render_…` formats it for the docs; `compile_…` returns a function that tells whether a
request has the same form. A parameter stands for any value, and within a string for at least one
character.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tally.store.errors import InvalidExpression
from tally.store.expressions import (
    Absent,
    And,
    BeginsWith,
    Between,
    Compare,
    Condition,
    Contains,
    Exists,
    In,
    Literal,
    Not,
    Operand,
    Or,
    Path,
    Size,
    TypeIs,
)

Matcher: TypeAlias = Callable[[Any], bool]
# Private-use characters, so that no text of a key looks like a parameter.
_OPEN, _CLOSE = "\ue000", "\ue001"
_PARAMETER = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")


class _Parameter(str):
    """A placeholder: text with marks around the name, so that f-strings and `+` keep it."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return str(self)  # a width such as :012 applies to values only


def param(name: str) -> Any:
    """Create a parameter of a template. It has the type that its place requires."""
    return _Parameter(f"{_OPEN}{name}{_CLOSE}")


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and _OPEN in value


def render_value(value: Any) -> str:
    """Format a value: `:name` for a parameter, `USER#{userId}` for a text that contains one."""
    if isinstance(value, _Parameter):
        return _PARAMETER.sub(r":\1", value)
    if isinstance(value, str):
        text = _PARAMETER.sub(r"{\1}", value)
        return "".join(
            character if character.isprintable() else f"\\u{ord(character):04x}"
            for character in text
        )
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def render_key(key: Mapping[str, Any]) -> str:
    """Format the template of a primary key."""
    return " AND ".join(f"{name} = {render_value(value)}" for name, value in key.items())


def render_path(path: Path) -> str:
    """Format an attribute or a nested path."""
    return _PARAMETER.sub(r"{\1}", str(path))


def render_condition(condition: Condition) -> str:
    """Format a condition as DynamoDB writes it."""
    match condition:
        case And(left, right):
            return f"{_within_and(left)} AND {_within_and(right)}"
        case Or(left, right):
            return f"{render_condition(left)} OR {render_condition(right)}"
        case Not(inner):
            return f"NOT ({render_condition(inner)})"
        case Compare(operator, left, right):
            return f"{_render_operand(left)} {operator} {_render_operand(right)}"
        case Between(value, low, high):
            bounds = f"{_render_operand(low)} AND {_render_operand(high)}"
            return f"{_render_operand(value)} BETWEEN {bounds}"
        case In(value, options):
            return f"{_render_operand(value)} IN ({', '.join(map(_render_operand, options))})"
        case Exists(path):
            return f"attribute_exists({render_path(path)})"
        case Absent(path):
            return f"attribute_not_exists({render_path(path)})"
        case BeginsWith(path, operand):
            return f"begins_with({_render_operand(path)}, {_render_operand(operand)})"
        case Contains(path, operand):
            return f"contains({_render_operand(path)}, {_render_operand(operand)})"
        case TypeIs(path, kind):
            return f"attribute_type({_render_operand(path)}, {kind})"
    raise InvalidExpression(f"{type(condition).__name__} is not a condition")


def _within_and(condition: Condition) -> str:
    text = render_condition(condition)
    return f"({text})" if isinstance(condition, Or) else text


def _render_operand(operand: Operand) -> str:
    if isinstance(operand, Path):
        return render_path(operand)
    if isinstance(operand, Size):
        return f"size({_render_operand(operand.path)})"
    return render_value(operand.value)


def compile_value(value: Any) -> Matcher | None:
    """Return a function that tells whether a value fits; None if every value does."""
    if isinstance(value, _Parameter):
        return None
    if not _is_template(value):
        return lambda found: found == value
    prefix, *rest = _PARAMETER.split(value)
    if len(rest) == 2 and not rest[1]:  # the usual key: a prefix and one parameter
        return lambda found: type(found) is str and found.startswith(prefix) and found != prefix
    fullmatch = _compile_text(value)
    return lambda found: type(found) is str and fullmatch(found) is not None


def _compile_text(value: str) -> Callable[[str], re.Match[str] | None]:
    *constants, suffix = map(re.escape, _PARAMETER.split(value)[::2])
    # Lazy, because the first parameters are short; the last one is greedy, which is fastest.
    return re.compile(f"{'.+?'.join(constants)}.+{suffix}", re.DOTALL).fullmatch


def compile_column(value: Any) -> Matcher:
    """Return a function that tells whether all values of a column fit."""
    if not _is_template(value) or isinstance(value, _Parameter):
        fits = compile_value(value)
        return lambda column: fits is None or all(map(fits, column))
    fullmatch = _compile_text(value)

    def matches(column: Sequence[Any]) -> bool:
        try:
            return all(map(fullmatch, column))
        except TypeError:  # not a string
            return False

    return matches


def compile_keys(templates: Sequence[Mapping[str, Any]]) -> Matcher | None:
    """Return a function that tells whether a key, or the key of an item, fits one of these.

    None if every key does: the engine checks the names and types of its attributes.
    """
    compiled = [_compile_key(template) for template in templates]
    matchers = [matcher for matcher in compiled if matcher is not None]
    return _any_of(matchers) if len(matchers) == len(compiled) else None


def _compile_key(template: Mapping[str, Any]) -> Matcher | None:
    compiled = [(name, compile_value(value)) for name, value in template.items()]
    parts = [(name, fits) for name, fits in compiled if fits is not None]
    if not parts:
        return None
    (first, fits_first), *others = parts
    if not others:
        return lambda key: fits_first(key.get(first))
    [(second, fits_second)] = others
    return lambda key: fits_first(key.get(first)) and fits_second(key.get(second))


def compile_conditions(templates: Sequence[Condition | None]) -> Matcher | None:
    """Return a function that tells whether a condition has one of these forms.

    None if there must be no condition at all.
    """
    if all(template is None for template in templates):
        return None
    return _any_of(
        [_is_none if template is None else _compile_condition(template) for template in templates]
    )


def _is_none(found: Any) -> bool:
    return found is None


def _any_of(matchers: Sequence[Matcher]) -> Matcher:
    if len(matchers) == 1:
        return matchers[0]
    return lambda found: any(matches(found) for matches in matchers)


def _compile_condition(template: Any) -> Matcher:
    kind: Any = type(template)
    match template:
        case And(left, right) | Or(left, right):
            one, other = _compile_condition(left), _compile_condition(right)
            return lambda found: type(found) is kind and one(found.left) and other(found.right)
        case Not(inner):
            matches = _compile_condition(inner)
            return lambda found: type(found) is kind and matches(found.inner)
        case Compare(operator, left, right):
            one, other = _compile_operand(left), _compile_operand(right)
            if isinstance(right, Literal) and isinstance(right.value, _Parameter):
                return lambda found: (
                    type(found) is kind
                    and found.operator == operator
                    and (found.left is left or found.left == left)
                    and type(found.right) is Literal
                )
            return lambda found: (
                type(found) is kind
                and found.operator == operator
                and one(found.left)
                and other(found.right)
            )
        case Between(value, low, high):
            middle, one, other = map(_compile_operand, (value, low, high))
            return lambda found: (
                type(found) is kind and middle(found.value) and one(found.low) and other(found.high)
            )
        case In():
            return _compile_in(template)
        case BeginsWith(path, operand) | Contains(path, operand):
            name = "prefix" if kind is BeginsWith else "element"
            one, other = _compile_operand(path), _compile_operand(operand)
            return lambda found: (
                type(found) is kind and one(found.path) and other(getattr(found, name))
            )
    # Exists, Absent and TypeIs have no values; their paths are usually the same objects.
    return lambda found: type(found) is kind and (found.path is template.path or found == template)


def _compile_in(template: In) -> Matcher:
    """A single parameter stands for any number of options."""
    value = _compile_operand(template.value)
    options = [_compile_operand(option) for option in template.options]
    match template.options:
        case (Literal(_Parameter()),):
            return lambda found: type(found) is In and value(found.value)
    return lambda found: (
        type(found) is In
        and value(found.value)
        and len(found.options) == len(options)
        and all(fits(option) for fits, option in zip(options, found.options, strict=True))
    )


def _compile_operand(template: Operand) -> Matcher:
    if isinstance(template, Literal):
        fits = compile_value(template.value)
        if fits is None:
            return lambda found: type(found) is Literal
        return lambda found: type(found) is Literal and fits(found.value)
    # Paths are cached: usually it is the same object.
    return lambda found: found is template or found == template


def compile_projection(template: tuple[Path, ...]) -> Matcher:
    """Return a function that tells whether a projection has these paths."""
    if not any(_is_template(part) for path in template for part in path.parts):
        return lambda found: bool(found == template)
    paths = [[compile_value(_whole(part)) for part in path.parts] for path in template]

    def matches(found: tuple[Path, ...]) -> bool:
        return len(found) == len(paths) and all(
            len(path.parts) == len(parts)
            and all(
                fits is None or fits(part) for fits, part in zip(parts, path.parts, strict=True)
            )
            for parts, path in zip(paths, found, strict=True)
        )

    return matches


def _whole(part: str | int) -> str | int:
    """Restore the parameter that is a whole part of a path, which is plain text there."""
    if isinstance(part, str) and _PARAMETER.fullmatch(part):
        return _Parameter(part)
    return part


def requires_item(condition: Condition | None) -> bool:
    """Whether the condition is false if the item does not exist."""
    match condition:
        case And(left, right):
            return requires_item(left) or requires_item(right)
        case Or(left, right):
            return requires_item(left) and requires_item(right)
        case Compare(operator, _, _):
            return operator != "<>"
        case Exists() | Between() | In() | BeginsWith() | Contains() | TypeIs():
            return True
    return False
