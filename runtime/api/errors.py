"""Every error that a caller of the runtime can meet, as one tree.

::

    RametError                      500  an error with an HTTP status and the OpenAI error shape
    ├── InvalidRequestError         400  the request is wrong: say what to change
    │   ├── InvalidParameterError   400  one parameter is wrong or unknown
    │   ├── InvalidConstraintError  400  a grammar can't be honoured exactly
    │   ├── EmptyPromptError        400
    │   ├── ContextLengthError      400  the prompt, or prompt plus output, is too long
    │   ├── ChatTemplateError       400  the model's chat template refuses the messages
    │   ├── UnsupportedEncodingError 415 a compressed body
    │   └── NoTokenAllowedError     400  masks and bans together leave nothing to generate
    ├── AuthenticationError         401
    ├── PermissionDeniedError       403
    ├── NotFoundError               404  an unknown model, response or path
    ├── RequestTimeoutError         408  the client took too long to send its request
    ├── RequestTooLargeError        413
    ├── QueueFullError              429  try again after ``retry_after_s``
    │   └── TargetUnreachableError  429  its TTFT target or deadline can't be met at this load
    ├── RequestAbortedError         499  the caller, or a disconnect, ended it
    ├── DeadlineExceededError       504
    ├── OutOfPagesError             503  the last running request outgrew the page pool
    ├── MemoryFullError             503  a part of the server's memory is full
    │   └── SlowReaderError         503  a client reads its answer too slowly
    ├── EngineDeadError             503
    │   ├── EngineUnresponsiveError 503  it makes no progress, or takes in no more requests
    │   └── ShuttingDownError       503  the server drains its calls and accepts no new ones
    ├── ForkedProcessError          503  an engine, stream or run of a parent process
    ├── ModelLoadError              500  a model file can't be used
    │   └── UnsupportedModelError   500  a sound file of a kind that Ramet doesn't run
    ├── ConfigurationError          400  a configuration file or environment variable is invalid
    ├── ListenError                 500  the server's address can't be bound
    └── InvariantError              500  ``check()`` found a broken invariant: a bug
"""

from __future__ import annotations

from typing import Any, ClassVar

from ramet.grammars.errors import ConstraintError, GrammarTooComplexError


class RametError(Exception):
    """The root. ``param`` names the field at fault, ``code`` is a stable machine-readable word."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.default_code

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process borders whole, whatever their constructors take."""
        return _rebuild, (type(self), self.args, self.__dict__)

    def body(self) -> dict[str, Any]:
        """The OpenAI error object: ``{"error": {message, type, param, code}}``."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


def _rebuild(kind: type[RametError], args: tuple[Any, ...], state: dict[str, Any]) -> RametError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


def as_ramet_error(error: Exception) -> RametError:
    """An error that ended a request, as its caller gets it."""
    if isinstance(error, RametError):
        return error
    if isinstance(error, ConstraintError):
        return constraint_error(error)
    wrapped = RametError(f"the request failed inside the engine: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def constraint_error(error: ConstraintError) -> InvalidConstraintError:
    """What a caller gets for a constraint that can't be compiled, or followed to its end."""
    too_complex = isinstance(error, GrammarTooComplexError)
    code = "grammar_too_complex" if too_complex else "invalid_grammar"
    return InvalidConstraintError(
        str(error), param="constraint", code=code, pointer=error.path, reason=error.reason
    )


class InvalidRequestError(RametError):
    """The request is wrong in itself; the same request will fail again."""

    status = 400
    type = "invalid_request_error"


class InvalidParameterError(InvalidRequestError):
    """One parameter has a wrong value, or no such parameter exists."""

    default_code = "invalid_parameter"


class InvalidConstraintError(InvalidRequestError):
    """A constraint can't be honoured exactly; the message names the schema path and keyword.

    ``pointer`` is the place in the constraint, as ``ConstraintError.path`` has it, and ``reason``
    what is wrong there; both are empty where they aren't known.
    """

    default_code = "invalid_grammar"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        pointer: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.pointer = pointer
        self.reason = reason


class EmptyPromptError(InvalidRequestError):
    """The prompt has no tokens and the tokenizer has no beginning-of-text token to stand for it."""

    default_code = "empty_prompt"


class ContextLengthError(InvalidRequestError):
    """More tokens than the model's context or the page pool can ever hold."""

    default_code = "context_length_exceeded"


class ChatTemplateError(InvalidRequestError):
    """The model's chat template refuses the messages, or fails on them."""

    default_code = "chat_template_error"


class UnsupportedEncodingError(InvalidRequestError):
    """The body has a content coding, such as gzip."""

    status = 415
    default_code = "unsupported_encoding"


class NoTokenAllowedError(InvalidRequestError):
    """The constraint, ``bad_words`` and ``allowed_token_ids`` together leave nothing to draw."""

    default_code = "no_token_allowed"


class AuthenticationError(RametError):
    """No API key, or an unknown one."""

    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"


class PermissionDeniedError(RametError):
    """The key is known, and may not do this."""

    status = 403
    type = "permission_error"


class NotFoundError(RametError):
    """An unknown model, path or stored object."""

    status = 404
    type = "invalid_request_error"
    default_code = "not_found"


class RequestTimeoutError(RametError):
    """A request's head and body didn't come in time."""

    status = 408
    type = "timeout_error"
    default_code = "request_timeout"


class RequestTooLargeError(RametError):
    """The body, or one of its parts, is over a limit."""

    status = 413
    type = "invalid_request_error"
    default_code = "request_too_large"


class QueueFullError(RametError):
    """The queue is full or a tenant is at its limit; ``retry_after_s`` says when to come back."""

    status = 429
    type = "rate_limit_error"
    default_code = "queue_full"

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.retry_after_s = retry_after_s


class TargetUnreachableError(QueueFullError):
    """The request's TTFT target or deadline can't be met at the present load."""

    default_code = "target_unreachable"


class RequestAbortedError(RametError):
    """The caller, or its disconnect, ended the request."""

    status = 499
    type = "aborted"
    default_code = "aborted"


class DeadlineExceededError(RametError):
    """The request's own deadline passed before it ended."""

    status = 504
    type = "timeout_error"
    default_code = "deadline_exceeded"


class OutOfPagesError(RametError):
    """The only running request needs more pages than the pool has."""

    status = 503
    type = "capacity_error"
    default_code = "out_of_pages"


class MemoryFullError(RametError):
    """A part of the server's memory is full; ``part`` names it. The request may be sent again."""

    status = 503
    type = "capacity_error"
    default_code = "memory_full"

    def __init__(self, message: str, *, part: str, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.part = part


class SlowReaderError(MemoryFullError):
    """The client takes its answer more slowly than the server may keep it."""

    default_code = "slow_reader"


class EngineDeadError(RametError):
    """The engine has stopped; no request can be served until it is started again."""

    status = 503
    type = "server_error"
    default_code = "engine_dead"


class EngineUnresponsiveError(EngineDeadError):
    """The engine makes no progress, or takes in requests more slowly than they come."""

    default_code = "engine_unresponsive"


class ShuttingDownError(EngineDeadError):
    """The server is shutting down and accepts no new requests."""

    default_code = "shutting_down"


class ForkedProcessError(RametError):
    """An engine, a stream or a run was used in a process forked from its own.

    Their threads are in the parent alone, so nothing would ever come of it.
    """

    status = 503
    default_code = "forked_process"


class ConfigurationError(RametError):
    """The configuration file or the environment is invalid, or the file can't be read."""

    status = 400
    default_code = "invalid_config"


class ListenError(RametError):
    """The server's configured address can't be bound."""

    default_code = "cannot_listen"


class ModelLoadError(RametError):
    """A model path that doesn't exist, or a file that can't be read as a model."""

    default_code = "model_load_error"


class UnsupportedModelError(ModelLoadError):
    """A sound model file of an architecture, tokenizer or tensor type that Ramet doesn't run."""

    default_code = "unsupported_model"


class InvariantError(RametError):
    """A broken invariant of the scheduler or the cache: a bug in Ramet."""

    default_code = "invariant_broken"
