"""Reads the expressions of a request and their names and values."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tally.store.parse import Substitutions
from tally.store.parse.substitutions import check_definitions
from tally.store.wire.service_errors import ServiceError, invalid
from tally.store.wire.values import read_value

_NAMES: Final = "ExpressionAttributeNames"
_VALUES: Final = "ExpressionAttributeValues"
# What the service reports with the key of the value; other errors are reported as they are.
_VALUE_ERRORS: Final = (
    "Supplied AttributeValue is empty",
    "Input collection contains duplicates",
    "One or more parameter values were invalid: An string set",
    "One or more parameter values were invalid: An number set",
    "One or more parameter values were invalid: Binary sets",
    "One or more parameter values were invalid: Input collection",
)
_WITHOUT_VALUES: Final = frozenset({"ProjectionExpression"})


def read_substitutions(body: Mapping[str, Any], expressions: Sequence[str]) -> Substitutions:
    """Return the names and values of a request that may have these expressions."""
    names, values = body.get(_NAMES), body.get(_VALUES)
    if names is None and values is None:
        return Substitutions()
    if all(body.get(expression) is None for expression in expressions):
        if names is not None:
            raise invalid(f"{_NAMES} can only be specified when using expressions")
        raise _values_without_expression(expressions)
    check_definitions(names, values)
    with_values = [expression for expression in expressions if expression not in _WITHOUT_VALUES]
    if values is not None and all(body.get(expression) is None for expression in with_values):
        raise _values_without_expression(with_values)
    return Substitutions(names, None if values is None else _read_values(values))


def _values_without_expression(expressions: Sequence[str]) -> Exception:
    absent = " and ".join(
        f"{expression} is null" for expression in expressions if expression not in _WITHOUT_VALUES
    )
    return invalid(f"{_VALUES} can only be specified when using expressions: {absent}")


def _read_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _read_defined(name, value) for name, value in values.items()}


def _read_defined(name: str, value: Any) -> Any:
    try:
        return read_value(value)
    except ServiceError as error:
        message = str(error)
        if message.startswith(_VALUE_ERRORS):
            raise invalid(f"{_VALUES} contains invalid value: {message} for key {name}") from None
        raise


def reject_mixed(body: Mapping[str, Any], legacy: Sequence[str], modern: Sequence[str]) -> None:
    """Reject a request with parameters of both generations of the API."""
    old = [name for name in legacy if body.get(name) is not None]
    if not old:
        return
    new = [name for name in modern if body.get(name) is not None]
    if new:
        raise invalid(
            "Can not use both expression and non-expression parameters in the same request:"
            f" Non-expression parameters: {{{', '.join(old)}}} Expression parameters:"
            f" {{{', '.join(new)}}}"
        )
