"""What stands in a secret's place, and what behind a name like `password` is none."""

from __future__ import annotations

import re
from typing import Final

_SHORT: Final = 18
_HEAD: Final = 6
_TAIL: Final = 4
STARS: Final = "***"
PRIVATE_KEY: Final = "[REDACTED PRIVATE KEY]"
_JUDGED: Final = 512
"""Characters of a value that are looked at to judge it."""

_PLACE = re.compile(
    r"\$[A-Za-z_{(]|<|\{|%\(|%[A-Za-z_]+%$|!|&[a-z]|\*[a-z]"  # a reference of a shell, a template, YAML
    r"|.*(?:getenv|environ|process\.env|import\.meta\.env|ENV\[|\bsecrets\.)"
    r"|.*\{[A-Za-z_][\w.()\[\]!:]*\}"
    r"|(?:op|vault|ssm|sops|env|file|secrets?|arn|keychain):"
    r"|#[0-9A-Fa-f]{3,8}$"  # a colour
    r"|.*[xX]{6}|[*•xX.#_-]+$|.*\*\*\*|.*\[REDACTED|.{6}\.\.\..{4}$",  # or masked already
    re.DOTALL,
)
_WORDS = frozenset(
    {
        "a", "abc", "access", "any", "api", "apikey", "auth", "basic", "bearer", "bool", "boolean",
        "bytes", "change", "changeme", "credential", "credentials", "default", "demo", "dummy", "empty",
        "example", "fake", "false", "foo", "bar", "baz", "here", "hidden", "id", "in", "int", "is",
        "key", "masked", "me", "missing", "mock", "my", "nil", "no", "none", "null", "number",
        "optional", "or", "pass", "passwd", "password", "passphrase", "placeholder", "private",
        "public", "redacted", "refresh", "required", "sample", "secret", "some", "str", "string", "tbd",
        "test", "text", "the", "this", "to", "todo", "token", "true", "undefined", "unknown", "unset",
        "user", "value", "xxx", "xyz", "your", "aes", "argon", "argon2", "argon2id", "base32", "base64",
        "base64url", "bcrypt", "blake2b", "ecdsa", "ed25519", "hmac", "int32", "int64", "md5", "oauth",
        "oauth2", "rs256", "hs256", "es256", "scrypt", "sha1", "sha256", "sha384", "sha512", "uint8",
        "utf8", "uuid4", "x509", "crypt", "hash",
    }
)  # fmt: skip
"""What stands where a secret would, and the names of ways to make one."""
_PIECES = re.compile(r"[-_ .:/;,]+")


def is_mixed(value: str) -> bool:
    """Whether it has a letter and a digit."""
    head = value[:_JUDGED]
    return any(c.isdigit() for c in head) and any(c.isalpha() for c in head)


def is_harmless(value: str) -> bool:
    """Whether a value is a look-up, a placeholder, a mask or made of words that stand where secrets go."""
    head = value[:_JUDGED].strip()
    if _PLACE.match(head):
        return True
    pieces = [each for each in _PIECES.split(head.lower()) if each]
    return all(
        each in _WORDS or each.rstrip("0123456789") in _WORDS or _is_few_digits(each) for each in pieces
    )


def reads_as_code(value: str) -> bool:
    """Whether an unquoted value is rather a name in a program: words with at most a digit behind each."""
    pieces = re.split(r"[._]|::|->", value[:_JUDGED])
    return len(pieces) > 1 and all(re.fullmatch(r"[A-Za-z]*[0-9]?", each) for each in pieces)


def _is_few_digits(piece: str) -> bool:
    return piece.isdigit() and len(piece) <= 4


def masked(value: str, mask: str) -> str:
    """What stands in its place: `mask` is that of a rule."""
    if mask == "phone":
        ends = 2 if len(value) <= 8 else 4
        return f"{value[:ends]}****{value[-ends:]}"
    if mask == "ends":
        # Where something is escaped, a cut could fall into it, and what was JSON would be none.
        if len(value) < _SHORT or "\\" in value or not value.isprintable():
            return STARS
        return f"{value[:_HEAD]}...{value[-_TAIL:]}"
    return STARS if mask == "stars" else mask
