"""The page at /docs: the description of the API to read, which loads nothing."""

from __future__ import annotations

from html import escape
from typing import Any

_STYLE = """
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:52rem;margin:0 auto;padding:1rem 1.25rem 4rem}
h1{font-size:1.6rem}h2{font-size:1.05rem;margin:2.2rem 0 .3rem;border-top:1px solid #8884;padding-top:1rem}
code{font:.9em ui-monospace,monospace}h2 code{font-size:1rem}
table{border-collapse:collapse;width:100%;font-size:.92rem}
td,th{text-align:left;vertical-align:top;padding:.25rem 1rem .25rem 0;border-top:1px solid #8883}
details{margin:.4rem 0}summary{cursor:pointer}
"""
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The content security policy of the page."""


def docs_page(api: dict[str, Any]) -> str:
    """The page for an OpenAPI document."""
    info = api["info"]
    calls = [
        _call(verb.upper(), path, call)
        for path, verbs in api["paths"].items()
        for verb, call in verbs.items()
    ]
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(info["title"])}: HTTP API</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head>
<body><main><h1>{escape(info["title"])} {escape(info["version"])}: HTTP API</h1>
<p>{escape(info["description"])} <a href="openapi.json">openapi.json</a> has this in full, for programs.
<a href="./">The page</a> captions photos in the browser.</p>
{"".join(calls)}</main></body></html>
"""


def _call(verb: str, path: str, call: dict[str, Any]) -> str:
    parts = [f"<h2><code>{verb} {escape(path)}</code></h2><p>{escape(call['summary'])}</p>"]
    kinds = call.get("requestBody", {}).get("content", {})
    if kinds:
        parts.append(f"<p>Body: {', '.join(f'<code>{escape(kind)}</code>' for kind in kinds)}</p>")
    if parameters := [one for one in call.get("parameters", []) if one["in"] == "query"]:
        rows = [(f"<code>{escape(one['name'])}</code>", escape(one["description"])) for one in parameters]
        parts.append(f"<details><summary>Parameters of the query</summary>{_table(rows)}</details>")
    answers = [
        (f"<code>{status}</code>", escape(one["description"])) for status, one in call["responses"].items()
    ]
    parts.append(f"<details><summary>Answers</summary>{_table(answers)}</details>")
    return "".join(parts)


def _table(rows: list[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><th>{name}</th><td>{text}</td></tr>' for name, text in rows)}</table>"
