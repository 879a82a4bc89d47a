"""CallPieces: which call of a stream each piece of a tool call belongs to, by the rules of all dialects."""

from __future__ import annotations

import msgspec

from gateway.dialects.chat_events import CallFunction, CallInput, CallPiece


class _Call:
    """One call: its place, and its pieces until its name is known."""

    __slots__ = ("id", "is_custom", "is_named", "place", "texts")

    def __init__(self, place: int) -> None:
        self.place = place
        self.id: str | None = None
        self.is_custom = False
        self.is_named = False
        self.texts: list[str] = []

    def add(self, piece: CallPiece) -> CallPiece | None:
        """Add a piece; return what may be passed on: nothing until the name is known."""
        self.id = self.id or piece.id
        if self.is_named:
            return piece
        self.is_custom = self.is_custom or piece.custom is not None
        self.texts.append(call_text(piece))
        name = call_name(piece)
        return self.named(name) if name else None

    def named(self, name: str) -> CallPiece:
        """Return all pieces so far as one."""
        self.is_named = True
        text = "".join(self.texts)
        self.texts.clear()
        if self.is_custom:
            return CallPiece(id=self.id, custom=CallInput(name, text))
        return CallPiece(id=self.id, function=CallFunction(name, text))


class CallPieces:
    """Pieces of one choice's calls: `take` each, and the `rest` at the end of the stream.

    An index finds the call. Without one an id does; without both, a name begins a call, and no name continues the last.
    Some servers give all their calls one index: there another id with a name begins a new call.
    """

    __slots__ = ("_by_id", "_by_index", "_calls")

    def __init__(self) -> None:
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}
        self._calls: list[_Call] = []

    def take(self, piece: CallPiece) -> tuple[int, CallPiece] | None:
        """Return the call's place among all calls, and the piece; None while the call has no name.

        The first piece of a call that is returned has its name, its id, and its arguments so far.
        """
        call = self._known(piece) or self._begin()
        if piece.index is not None:
            self._by_index[piece.index] = call
        if piece.id:
            self._by_id[piece.id] = call
        found = call.add(piece)
        return None if found is None else (call.place, found)

    def rest(self) -> list[tuple[int, CallPiece]]:
        """Return the calls that never got a name, and have an id or arguments."""
        unnamed = [call for call in self._calls if not call.is_named and (call.id or any(call.texts))]
        return [(call.place, call.named("")) for call in unnamed]

    def _known(self, piece: CallPiece) -> _Call | None:
        """Return the call that the piece continues; None if it begins one."""
        if piece.index is not None:
            call = self._by_index.get(piece.index)
            is_other = call is not None and call.id and piece.id and call.id != piece.id and call_name(piece)
            return None if is_other else call
        if piece.id:
            return self._by_id.get(piece.id)
        return None if call_name(piece) or not self._calls else self._calls[-1]

    def _begin(self) -> _Call:
        call = _Call(len(self._calls))
        self._calls.append(call)
        return call


def call_name(piece: CallPiece) -> str:
    """Return the name in a piece; empty without one."""
    given = piece.custom or piece.function
    return (given.name if given is not None else None) or ""


def call_text(piece: CallPiece) -> str:
    """Return the arguments in a piece, or the input of a custom tool."""
    if piece.custom is not None:
        return piece.custom.input or ""
    return (piece.function.arguments if piece.function is not None else None) or ""


def are_whole_arguments(pieces: list[str]) -> bool:
    """Return whether the arguments so far are a JSON value, to which nothing can be added."""
    try:
        msgspec.json.decode("".join(pieces))
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
