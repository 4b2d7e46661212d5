"""The front door: what a program that embeds Retold imports, loaded only when it is used."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` alone costs most of what importing this package may cost
if TYPE_CHECKING:
    from .domain.errors import RetoldError
    from .infrastructure.engine import SessionEngine, open_home

__version__ = "0.1.0"
__all__ = ["RetoldError", "SessionEngine", "__version__", "open_home"]

_HOME_OF = {
    "RetoldError": ".domain.errors",
    "SessionEngine": ".infrastructure.engine",
    "open_home": ".infrastructure.engine",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
