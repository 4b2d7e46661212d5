"""Between payloads and the bytes that the log keeps: MessagePack by topic, zstd where it pays."""

from __future__ import annotations

import sys
import threading
from functools import cache
from typing import Any

import msgspec

from ..domain.errors import LogDamaged
from ..domain.events import BY_TOPIC, ErasedEvent, Payload, UnknownEvent

COMPRESS_FROM_BYTES = 1024
"""Below this a frame saves little and costs 8 us to open, an eighth of what telling an event costs: a
sixth of all messages are between half of this and this (tests/bench/make_store.py)."""
_LEVEL = 3
_MAGIC = b"\x28\xb5\x2f\xfd"
"""A zstd frame begins so (RFC 8878, 3.1.1); a MessagePack array never does."""
SALT_BYTES = 16
PAYLOAD_HASH_BYTES = 16

_encode = msgspec.msgpack.Encoder().encode
_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {}
"""Made as topics are met: each costs more than most commands decode."""
_local = threading.local()


@cache
def _zstd() -> Any:
    """The zstd of the standard library, or its backport; not every command opens a frame."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def encode(payload: Payload) -> bytes:
    """The payload as MessagePack, uncompressed: what `payload_hash` is over."""
    return _encode(payload)


def pack(plain: bytes) -> bytes:
    """What the log stores for `plain`: itself, or a zstd frame where that is a seventh smaller.

    Bytes that look like a frame become one whatever their size, so that `unpack` need not guess.
    """
    alike = plain[:4] == _MAGIC
    if len(plain) < COMPRESS_FROM_BYTES and not alike:
        return plain
    try:
        compressor = _local.compressor
    except AttributeError:
        compressor = _local.compressor = _zstd().ZstdCompressor(level=_LEVEL)
    packed: bytes = compressor.compress(plain, compressor.FLUSH_FRAME)
    return packed if alike or len(packed) * 7 < len(plain) * 6 else plain


def unpack(stored: bytes) -> bytes:
    """The inverse of `pack`."""
    if stored[:4] != _MAGIC:
        return stored
    plain: bytes = _zstd().decompress(stored)
    return plain


def payload_hash(plain: bytes, salt: bytes) -> bytes:
    """BLAKE2b keyed with the row's own salt: once both are emptied, nothing can be guessed back."""
    from hashlib import blake2b  # not for those who only read: start-up is imports

    return blake2b(plain, digest_size=PAYLOAD_HASH_BYTES, key=salt).digest()


def decode(topic: str, stored: bytes | None, *, position: int = 0) -> Payload | UnknownEvent | ErasedEvent:
    """The payload behind stored bytes.

    None is an erased payload; a topic that this program does not know is an UnknownEvent.

    Raises:
        LogDamaged: the bytes are not what the topic says; names the position.
    """
    if stored is None:
        return ErasedEvent(topic)
    decoder = _decoders.get(topic) or _decoder(topic)
    if decoder is None:
        return UnknownEvent(topic)
    try:
        payload: Payload = decoder.decode(stored if stored[:4] != _MAGIC else unpack(stored))
    except (msgspec.MsgspecError, _zstd().ZstdError, ValueError, RecursionError) as error:
        raise LogDamaged(
            f"event #{position} ({topic}) cannot be decoded: {error}",
            hint="retold verify names the damage; restore a backup of events.db",
        ) from error
    return payload


def given_back(topic: str, plain: bytes) -> Payload:
    """What the log will say of a payload that is about to be written.

    Raises:
        msgspec.MsgspecError, ValueError, RecursionError: it could not be read again.
        KeyError: no payload has this topic.
    """
    decoder = _decoders.get(topic) or _decoder(topic)
    if decoder is None:
        raise KeyError(topic)
    payload: Payload = decoder.decode(plain)
    return payload


def _decoder(topic: str) -> msgspec.msgpack.Decoder[Any] | None:
    known = BY_TOPIC.get(topic)
    if known is None:
        return None
    decoder = _decoders[topic] = msgspec.msgpack.Decoder(known)
    return decoder
