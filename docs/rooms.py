"""`python -m docs.rooms`: measure the rooms of each package, and draw them into ARCHITECTURE.md.

A room is what stands at the top of a package: a folder, or a file that stands alone. An arrow leads from a room to one
that it imports from, also within a function or for type checking. `--root DIR` measures another checkout.
"""

import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import grimp
import typer

from docs.marked import update_parts

ROOT = Path(__file__).parent.parent
PACKAGES = ("demur", "demur.offline", "demur.service")
DRAWN = ("demur.offline", "demur.service")
Edges = dict[str, set[str]]


@dataclass(frozen=True)
class Rooms:
    """The imports between the rooms of one package: `edges` has an entry for every room.

    lines: of Python, all files together; largest_folder: most files in one folder, `__init__.py` not counted; folders:
    the rooms that are no single file.
    """

    package: str
    lines: int
    largest_folder: int
    edges: Edges
    folders: frozenset[str]

    @cached_property
    def reach(self) -> Edges:
        """For each room, every room that it needs, directly or through others."""
        return {room: _reachable(self.edges, room) for room in self.edges}

    @cached_property
    def cycles(self) -> set[frozenset[str]]:
        """Groups of rooms that import each other, directly or through others."""
        groups = (frozenset(b for b in self.reach[a] if a in self.reach[b]) for a in self.edges)
        return {group for group in groups if len(group) > 1}

    @property
    def arrows(self) -> int:
        return sum(map(len, self.edges.values()))

    @cached_property
    def levels(self) -> int:
        """Rooms on the longest chain of imports; a cycle counts once."""
        depth: dict[str, int] = {}
        for room in sorted(self.edges, key=lambda name: len(self.reach[name])):  # what it needs comes before it
            below = [depth[b] for b in self.reach[room] if b in depth and room not in self.reach[b]]
            depth[room] = 1 + max(below, default=0)
        return max(depth.values(), default=0)

    def direct(self) -> Edges:
        """The arrows that do not follow from others; in a cycle, none follows from another of the cycle."""
        return {a: {b for b in below if not self._follows(a, b)} for a, below in self.edges.items()}

    def _follows(self, a: str, b: str) -> bool:
        others = (c for c in self.edges[a] if a not in self.reach[c] and c not in self.reach[b])
        return any(b in self.reach[c] for c in others)

    def drawing(self) -> str:
        """A flowchart in Mermaid."""
        lines = ["```mermaid", "flowchart TD"]
        lines += [f'    {_node(room)}["{room}{self._ending(room)}"]' for room in sorted(self.edges)]
        lines += [f"    {_node(a)} --> {_node(b)}" for a, below in sorted(self.direct().items()) for b in sorted(below)]
        return "\n".join([*lines, "```"])

    def _ending(self, room: str) -> str:
        return "/" if room in self.folders else ".py"


def _node(room: str) -> str:
    return f"room_{room}"  # "end" and "call" mean something in Mermaid


def _reachable(edges: Edges, start: str) -> set[str]:
    reached, waiting = set[str](), [*edges[start]]
    while waiting:
        room = waiting.pop()
        if room not in reached:
            reached.add(room)
            waiting += edges[room]
    return reached


def rooms_of(package: str, graph: grimp.ImportGraph, root: Path) -> Rooms:
    """Measure one package of the graph that `read_imports` made."""
    folder, depth = _folder(root, package), package.count(".") + 1
    edges: Edges = {child.split(".")[depth]: set() for child in graph.find_children(package)}
    for module in graph.find_descendants(package):
        room = module.split(".")[depth]
        for imported in graph.find_modules_directly_imported_by(module):
            if imported.startswith(f"{package}."):
                edges[room].add(imported.split(".")[depth])
    for room, below in edges.items():
        below.discard(room)
    folders = frozenset(room for room in edges if (folder / room).is_dir())
    files = [*folder.rglob("*.py")]  # of links to other packages, none
    in_folders = Counter(file.parent for file in files if file.name != "__init__.py")
    lines = sum(len(file.read_text().splitlines()) for file in files)
    return Rooms(package, lines, max(in_folders.values()), edges, folders)


def _folder(root: Path, package: str) -> Path:
    return root.joinpath(*package.split("."))


def read_imports(root: Path) -> grimp.ImportGraph:
    """The imports of all packages of the checkout at `root`; nothing of it is run."""
    sys.path.insert(0, str(root))
    try:
        return grimp.build_graph(PACKAGES[0], cache_dir=None)
    finally:
        sys.path.remove(str(root))


def measures(root: Path) -> list[Rooms]:
    """The rooms of every package of the checkout at `root`."""
    graph = read_imports(root)
    return [rooms_of(name, graph, root) for name in PACKAGES if _folder(root, name).is_dir()]


def table(packages: list[Rooms]) -> str:
    """Every number, a row for each package: rooms at its top, levels of imports, arrows between rooms, cycles."""
    lines = [
        "| package | lines | files in the largest folder | rooms | levels | arrows | cycles |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for rooms in packages:
        numbers = (rooms.lines, rooms.largest_folder, len(rooms.edges), rooms.levels, rooms.arrows, len(rooms.cycles))
        lines.append(f"| `{rooms.package}` | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines)


def drawings(packages: list[Rooms]) -> dict[str, str]:
    """The generated parts of ARCHITECTURE.md by their names."""
    drawn = [rooms for rooms in packages if rooms.package in DRAWN]
    return {f"rooms of {rooms.package.rpartition('.')[2]}": rooms.drawing() for rooms in drawn}


def main(
    root: Annotated[Path, typer.Option(help="Checkout to measure.")] = ROOT,
    write: Annotated[bool, typer.Option("--write", help="Write the drawings into ARCHITECTURE.md.")] = False,
) -> None:
    """Measure the rooms of each package, and draw them."""
    packages = measures(root.resolve())
    print(table(packages))
    for rooms in packages:
        for cycle in rooms.cycles:
            print(f"{rooms.package}: cycle between {', '.join(sorted(cycle))}")
    if write:
        update_parts(root / "ARCHITECTURE.md", drawings(packages))


if __name__ == "__main__":
    typer.run(main)
