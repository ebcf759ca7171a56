"""Other distributions' back ends and model loaders, found through entry points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from genericbuilders.adapter import Adapter
from genericbuilders.model import ModelLoader
from genericbuilders.registry import DuplicateAdapterError, Registry

__all__ = ["ENTRY_POINT_GROUP", "Discovery", "Plugin", "PluginFailure", "discover"]

ENTRY_POINT_GROUP = "genericbuilders.adapters"


@dataclass(frozen=True)
class Plugin:
    """What one entry point brings: back ends, model loaders, or both."""

    name: str
    adapters: tuple[Adapter, ...] = ()
    model_loaders: tuple[ModelLoader, ...] = ()


@dataclass(frozen=True)
class PluginFailure:
    """An entry point that could not be used, and why."""

    entry_point: str
    reason: str


@dataclass(frozen=True)
class Discovery:
    """Everything that was found: what works, and what does not."""

    registry: Registry
    model_loaders: tuple[ModelLoader, ...]
    failures: tuple[PluginFailure, ...]


def discover(built_in: Iterable[Adapter] = (), found: Iterable[EntryPoint] | None = None) -> Discovery:
    """Put the built-in back ends and those of all installed plug-ins into one registry.

    An entry point names a `Plugin`, or a single `Adapter` or `ModelLoader`. One that raises, or names something
    else, is listed as a failure with its error; the others still load.

    Args:
        built_in: this library's own adapters; they come first.
        found: the entry points; ``None`` takes all that are installed in the group `ENTRY_POINT_GROUP`.

    Raises:
        DuplicateAdapterError: two adapters have one name.
    """
    registry = Registry(built_in)
    loaders: list[ModelLoader] = []
    failures: list[PluginFailure] = []
    for point in entry_points(group=ENTRY_POINT_GROUP) if found is None else found:
        label = f"{point.name} = {point.value}"
        try:
            thing: object = point.load()
        except (Exception, SystemExit) as error:
            failures.append(PluginFailure(label, f"{type(error).__name__}: {error}"))
            continue
        if isinstance(thing, Adapter):
            thing = Plugin(point.name, adapters=(thing,))
        elif isinstance(thing, ModelLoader):
            thing = Plugin(point.name, model_loaders=(thing,))
        if not isinstance(thing, Plugin):
            failures.append(
                PluginFailure(label, f"is a {type(thing).__name__}; a Plugin, an Adapter or a ModelLoader is expected")
            )
            continue
        parts: list[object] = [*thing.adapters, *thing.model_loaders]
        strange = [part for part in parts if not isinstance(part, Adapter | ModelLoader)]
        if strange:
            failures.append(PluginFailure(label, f"brings {strange[0]!r}, neither an Adapter nor a ModelLoader"))
            continue
        for adapter in thing.adapters:
            try:
                registry.add(adapter)
            except DuplicateAdapterError as error:
                raise DuplicateAdapterError(f"entry point {label!r}: {error}") from None
        loaders.extend(thing.model_loaders)
    return Discovery(registry, tuple(loaders), tuple(failures))
