"""How a value is written in a command line that a person may copy, whatever it holds."""

from __future__ import annotations

import shlex

_ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'", "\\": "\\\\"}


def shell_word(text: str) -> str:
    """`text` as one word of a shell; as $'…' where it holds what no terminal should be sent."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_in_ansi_quotes, text)) + "'"


def _in_ansi_quotes(char: str) -> str:
    code = ord(char)
    if char in _ESCAPED:
        return _ESCAPED[char]
    if char.isprintable():
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
