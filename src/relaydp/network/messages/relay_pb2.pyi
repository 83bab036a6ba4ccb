from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Envelope(_message.Message):
    __slots__ = ("consortium", "epoch", "kind", "seq", "made", "idle", "previous", "body")
    CONSORTIUM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    MADE_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    consortium: bytes
    epoch: int
    kind: int
    seq: int
    made: _containers.RepeatedScalarFieldContainer[int]
    idle: int
    previous: bytes
    body: bytes
    def __init__(self, consortium: _Optional[bytes] = ..., epoch: _Optional[int] = ..., kind: _Optional[int] = ..., seq: _Optional[int] = ..., made: _Optional[_Iterable[int]] = ..., idle: _Optional[int] = ..., previous: _Optional[bytes] = ..., body: _Optional[bytes] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("hash", "again")
    HASH_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    hash: bytes
    again: bool
    def __init__(self, hash: _Optional[bytes] = ..., again: _Optional[bool] = ...) -> None: ...

class Greeting(_message.Message):
    __slots__ = ("consortium", "epoch")
    CONSORTIUM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    consortium: bytes
    epoch: int
    def __init__(self, consortium: _Optional[bytes] = ..., epoch: _Optional[int] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("consortium", "epoch", "ready", "why", "has_accepted", "accepted_seq", "accepted_hash", "has_sent", "sent_seq", "sent_hash")
    CONSORTIUM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    HAS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_SEQ_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_HASH_FIELD_NUMBER: _ClassVar[int]
    HAS_SENT_FIELD_NUMBER: _ClassVar[int]
    SENT_SEQ_FIELD_NUMBER: _ClassVar[int]
    SENT_HASH_FIELD_NUMBER: _ClassVar[int]
    consortium: bytes
    epoch: int
    ready: bool
    why: str
    has_accepted: bool
    accepted_seq: int
    accepted_hash: bytes
    has_sent: bool
    sent_seq: int
    sent_hash: bytes
    def __init__(self, consortium: _Optional[bytes] = ..., epoch: _Optional[int] = ..., ready: _Optional[bool] = ..., why: _Optional[str] = ..., has_accepted: _Optional[bool] = ..., accepted_seq: _Optional[int] = ..., accepted_hash: _Optional[bytes] = ..., has_sent: _Optional[bool] = ..., sent_seq: _Optional[int] = ..., sent_hash: _Optional[bytes] = ...) -> None: ...
