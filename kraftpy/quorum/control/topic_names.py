"""Which names of topics are too alike to exist together. Pure.

In the names of metrics a dot and an underscore are the same, so `a.b` and `a_b` collide. Finding
a collision costs one look-up: names that have such a letter are kept by what they look like.
"""


class TopicNames:
    """The names that have a dot or an underscore, by what they look like."""

    def __init__(self) -> None:
        self._alike: dict[str, set[str]] = {}

    def add(self, name: str) -> None:
        look = _look(name)
        if look is not None:
            self._alike.setdefault(look, set()).add(name)

    def remove(self, name: str) -> None:
        look = _look(name)
        if look is not None:
            names = self._alike[look]
            names.discard(name)
            if not names:
                del self._alike[look]

    def colliding(self, name: str) -> list[str]:
        """Other names that look like this one."""
        look = _look(name)
        if look is None:
            return []
        return sorted(each for each in self._alike.get(look, ()) if each != name)


def _look(name: str) -> str | None:
    return name.replace(".", "_") if "." in name or "_" in name else None
