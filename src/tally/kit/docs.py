"""Renders an OpenAPI document as the self-contained HTML page at /docs.

`render_docs` is a pure function. The page needs no script and no network access, and all text from
the document is escaped.
"""

import json
import shlex
from collections.abc import Mapping
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --line: #d9dee5; --soft: #f4f6f9; --text: #1c2530; --quiet:
  #566375; --page: #fff;
  --get: #0b6bcb; --post: #1a7f4b; --put: #9a5b00; --patch: #9a5b00; --delete: #c2313a; }
@media (prefers-color-scheme: dark) { :root { --line: #303a47; --soft: #1b222c; --text: #e4e9f0;
  --quiet: #9aa7b8;
  --page: #12171e; --get: #63aefc; --post: #4fc98a; --put: #e3a548; --patch: #e3a548; --delete:
  #f5818a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.5rem 6rem; background: var(--page);
  color: var(--text);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { margin: 0 0 .25rem; font-size: 2rem; } h2 { margin: 3rem 0 .25rem; } h3 { margin: 1.5rem 0
  .5rem; font-size: 1rem; }
p { margin: .25rem 0 .75rem; } .quiet { color: var(--quiet); } a { color: var(--get); }
nav a { margin-right: 1rem; } code, pre { font: .875rem/1.5 ui-monospace, monospace; }
pre { margin: .5rem 0; padding: .75rem 1rem; overflow-x: auto; background: var(--soft); border: 1px
  solid var(--line);
  border-radius: .4rem; }
details { margin: .6rem 0; border: 1px solid var(--line); border-radius: .5rem; }
summary { display: flex; gap: .9rem; align-items: baseline; padding: .65rem 1rem; cursor: pointer;
  list-style: none; }
summary:hover, details[open] > summary { background: var(--soft); } details > div { padding: .25rem
  1.25rem 1rem; }
.method { min-width: 4.2rem; font: 700 .8rem ui-monospace, monospace; text-transform: uppercase; }
.get { color: var(--get); } .post { color: var(--post); } .put { color: var(--put); } .patch {
  color: var(--patch); }
.delete { color: var(--delete); } .path { font-weight: 600; } summary .quiet { margin-left: auto;
  text-align: right; }
table { width: 100%; border-collapse: collapse; } td, th { padding: .35rem .75rem .35rem 0;
  text-align: left;
  vertical-align: top; border-bottom: 1px solid var(--line); } th { color: var(--quiet);
  font-weight: 500; }
"""

CONSTRAINTS = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
    }
)

Json = Mapping[str, Any]


class Html(str):
    """Text that is already HTML; `element` escapes all other text."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str) -> Html:
    rendered = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Html) else escape(child) for child in children)
    return Html(f"<{name}{rendered}>{inner}</{name}>")


def render_docs(document: Json) -> str:
    """Return the complete page."""
    info = document["info"]
    tags = [tag for tag in document["tags"] if _operations(document, tag["name"])]
    links = [element("a", tag["name"], href=f"#{tag['name']}") for tag in tags]
    head = Html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{element('title', info['title'])}<style>{STYLE}</style></head>"
    )
    body = element(
        "body",
        element("h1", info["title"]),
        element(
            "p",
            f"Version {info['version']} · ",
            element("a", "openapi.json", href="openapi.json"),
            class_="quiet",
        ),
        element("p", info["description"]),
        element(
            "p",
            "In the examples, ",
            element("code", "$TALLY"),
            " is the address of this server.",
            class_="quiet",
        ),
        element("nav", *links),
        *(_section(document, tag) for tag in tags),
        _schemas(document),
    )
    return f"{head}{body}</html>"


def _operations(document: Json, tag: str) -> list[tuple[str, str, Json]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag in operation["tags"]
    ]


def _section(document: Json, tag: Json) -> Html:
    operations = [_operation(*entry) for entry in _operations(document, tag["name"])]
    return element(
        "section",
        element("h2", tag["name"], id=tag["name"]),
        element("p", tag["description"]),
        *operations,
    )


def _operation(path: str, method: str, operation: Json) -> Html:
    security = ", ".join(name for entry in operation.get("security", ()) for name in entry)
    parts = [element("p", operation["description"])] if "description" in operation else []
    if security:
        parts.append(element("p", "Requires ", element("code", security), class_="quiet"))
    parts += [
        _parameters(operation["parameters"]),
        _request(operation),
        *_responses(operation["responses"]),
    ]
    parts += [element("h3", "Try it"), element("pre", _curl(path, method, operation))]
    summary = element(
        "summary",
        element("span", method, class_=f"method {method}"),
        element("code", path, class_="path"),
        element("span", operation["summary"], class_="quiet"),
    )
    return element("details", summary, element("div", *parts), id=operation["operationId"])


def _parameters(parameters: list[Json]) -> Html:
    if not parameters:
        return Html("")
    rows = [
        element(
            "tr",
            element("td", element("code", entry["name"])),
            element("td", entry["in"]),
            element("td", _type(entry["schema"])),
            element("td", "required" if entry["required"] else ""),
        )
        for entry in parameters
    ]
    return element("div", element("h3", "Parameters"), element("table", *rows))


def _request(operation: Json) -> Html:
    if "requestBody" not in operation:
        return Html("")
    [(media_type, content)] = operation["requestBody"]["content"].items()
    return element("div", element("h3", "Body"), _body(media_type, content))


def _responses(responses: Json) -> list[Html]:
    return [
        element(
            "div",
            element("h3", f"{status} {response['description']}"),
            *(
                _body(media_type, content, in_one_line=status >= "400")
                for media_type, content in response.get("content", {}).items()
            ),
        )
        for status, response in responses.items()
    ]


def _body(media_type: str, content: Json, in_one_line: bool = False) -> Html:
    examples = [entry["value"] for entry in content.get("examples", {}).values()]
    examples += [content["example"]] if "example" in content else []
    about = element("p", element("code", media_type), " ", _type(content["schema"]), class_="quiet")
    texts = [
        json.dumps(example, ensure_ascii=False) if in_one_line else _text(example)
        for example in examples
    ]
    return element("div", about, *(element("pre", text) for text in texts))


def _schemas(document: Json) -> Html:
    schemas = [
        element(
            "details",
            element("summary", element("code", name, class_="path")),
            element(
                "div",
                *([element("p", schema["description"])] if "description" in schema else []),
                _fields(schema),
            ),
            id=f"schema-{name}",
        )
        for name, schema in document["components"]["schemas"].items()
    ]
    return element("section", element("h2", "Schemas"), *schemas) if schemas else Html("")


def _fields(schema: Json) -> Html:
    if "properties" not in schema:
        return element("pre", _text(schema))
    required = schema.get("required", ())
    rows = [
        element(
            "tr",
            element("td", element("code", name)),
            element("td", _type(field)),
            element("td", "required" if name in required else ""),
            element("td", field.get("description", "")),
        )
        for name, field in schema["properties"].items()
    ]
    return element("table", *rows)


def _type(schema: Json) -> Html:
    """Describe a schema in a few words; a struct is a link to its table."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return element("a", name, href=f"#schema-{name}")
    if "anyOf" in schema:
        return Html(" or ".join(_type(choice) for choice in schema["anyOf"]))
    if "enum" in schema:
        return element("span", " or ".join(json.dumps(value) for value in schema["enum"]))
    if schema.get("type") == "array" and "items" in schema:
        return Html(f"list of {_type(schema['items'])}")
    limits = [f"{key} {value}" for key, value in schema.items() if key in CONSTRAINTS]
    return element("span", ", ".join([schema.get("type", "anything"), *limits]))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _curl(path: str, method: str, operation: Json) -> str:
    words = ["curl"] if method == "get" else ["curl", "-X", method.upper()]
    words.append(f'"$TALLY{path}"')
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "example" in content:
        words += [
            "-H",
            "'content-type: application/json'",
            "-d",
            shlex.quote(json.dumps(content["example"])),
        ]
    return " ".join(words)
