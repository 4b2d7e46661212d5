"""Whether state.db is to blame for what went wrong over its rows, and the new file that is begun then.

SQLite checks a page when it parses it, and a value never: damage may first be met by a query, as an
error of SQLite, a text that is no UTF-8, or a value that no fold would have written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import apsw
import msgspec

from ..domain.errors import LogDamaged, ProjectionDamaged, ProjectionsBegunAnew
from .state_file import NAME, damaged, detail_of

if TYPE_CHECKING:
    from .log import Log
    from .projector import Projector

MET = (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError)
"""What damage looks like where a query meets it."""
STRANGE = (
    apsw.SQLError,
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
)
"""What damage may look like, and a fault of this program as well."""
_OF_THE_FILE = {"file", "rows", "search_index"}


@contextlib.contextmanager
def blaming(
    log: Log, projector: Callable[[], Projector], *, sure: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Where state.db is to blame for what goes wrong inside, begin it anew.

    Args:
        sure: what is enough to go by; whatever else looks like damage is asked of a fold from nothing.

    Raises:
        ProjectionsBegunAnew: it was; nobody has told them again yet. ProjectionDamaged: it was, and
            nothing can be written here.
    """
    saves = log.saves
    try:
        yield
    except ProjectionsBegunAnew:
        raise
    except sure as error:
        raise begun_anew(projector(), error, saved=log.saves != saves) from error
    except MET + STRANGE as error:
        refuse_blamed(projector(), error, saves=saves)
        raise


def refuse_blamed(projector: Projector, error: Exception, *, saves: int) -> None:
    """Where the rows of state.db are other than the log tells, begin it anew; else it was not to blame.

    Args:
        saves: `Log.saves` when that began which `error` ended.

    Raises:
        ProjectionsBegunAnew, ProjectionDamaged: as `blaming`.
    """
    if differs(projector):
        raise begun_anew(projector, error, saved=projector.log.saves != saves) from error


def begun_anew(projector: Projector, error: Exception, *, saved: bool = False) -> ProjectionDamaged:
    """Leave the file where it lies and begin another; what to raise.

    Args:
        saved: something was written before that, which doing all again would write twice.
    """
    why = _told(error)
    what = damaged(why)
    if projector.state.read_only:
        what.hint = "the log is untouched; where the home can be written: retold projections rebuild"
        return what
    projector.supersede(what)
    return ProjectionsBegunAnew(f"the projections in {NAME} were damaged: {why}", saved=saved)


def differs(projector: Projector) -> bool:
    """Whether the rows are other than the log tells; False where that cannot be known."""
    from .verify_projections import verify_projections  # only where something went wrong

    try:
        problems, _ = verify_projections(projector, told=not projector.lag().damaged)
    except ProjectionDamaged:
        return True
    except LogDamaged:
        return False
    return any(problem.kind in _OF_THE_FILE for problem in problems)


def _told(error: Exception) -> str:
    if isinstance(error, ProjectionDamaged):
        return detail_of(error)
    if isinstance(error, UnicodeDecodeError):
        return f"a text in it is no UTF-8 ({error.reason})"
    if isinstance(error, MET):
        return str(error)
    return f"a row in it is none that the log tells ({error})"
