"""Pieces of HTML: escaped text, tables, badges, and a page that needs nothing from the network."""

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from jepsen_like.verdict import Verdict

_ASSETS: Final = Path(__file__).parent / "assets"


def escaped(value: Any) -> str:
    return html.escape(str(value), quote=True)


def badge(verdict: Verdict | str, *, small: bool = False) -> str:
    name = escaped(str(verdict))
    return f'<span class="badge{" small" if small else ""} {name}">{name}</span>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> str:
    """Cells are HTML already."""
    right = set(numeric)

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=num' if n in right else ''}>{cell}</{tag}>"
            for n, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells("th", head)}</tr>{body}</table></div>'


def asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def embedded(data: Any) -> str:
    """JSON that may stand in a script element: no end tag can be read out of it."""
    dumped = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return dumped.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def page(title: str, body: str, data: Any = None) -> str:
    """A whole file: style, content, and with `data` the timeline's script."""
    script = ""
    if data is not None:
        script = (
            f'<script type="application/json" id="data">{embedded(data)}</script>'
            f"<script>{asset('timeline.js')}</script>"
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{asset('page.css')}</style></head>"
        f"<body>{body}{script}</body></html>\n"
    )


def times(what: str, count: int) -> str:
    """How often; `what` is HTML already."""
    return f"{what} \u00d7 {spaced(count)}"


def spaced(number: float) -> str:
    """12 345: digits in groups, without a comma that half of the world reads as a point."""
    return f"{number:,.0f}".replace(",", "\u202f")
