"""What the stub of the providers is told to answer, and what it was asked, whatever the API."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call in an answer; arguments given as text are sent as they are."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        """The arguments as JSON text."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Tokens:
    """What an answer is said to have used; `output` includes `reasoning`, nothing else overlaps."""

    uncached: int = 1000
    cached: int = 0
    written: int = 0
    """Input tokens written to the prompt cache."""
    output: int = 100
    reasoning: int = 0

    @property
    def input(self) -> int:
        """The whole prompt."""
        return self.uncached + self.cached + self.written


@dataclass(frozen=True)
class Answer:
    """A model's answer."""

    text: str = ""
    calls: Sequence[Call] = ()
    reasoning: str = ""
    stop: Literal["length", "filter", "refusal"] | None = None
    """Why it ended, if not because it was complete; a refusal's words are `text`."""
    tokens: Tokens = Tokens()
    delay: float = 0
    """Seconds before the answer."""


@dataclass(frozen=True)
class Failure:
    """An error instead of an answer."""

    status: int
    message: str = "The server had an error while processing your request."
    code: str | None = None
    retry_after: float | None = None
    in_stream: bool = False
    """Sent as an event of a stream that began well."""


@dataclass(frozen=True)
class Turn:
    """A message of a request, the same whatever the API."""

    role: str
    text: str = ""
    reasoning: tuple[str, ...] = ()
    calls: tuple[tuple[str, str, str], ...] = ()
    """Id, name and JSON arguments of each call."""
    results: tuple[tuple[str, str], ...] = ()
    """Call id and text of each result."""


@dataclass(frozen=True)
class Request:
    """What was asked."""

    api: "Api"
    body: Json
    headers: Mapping[str, str]

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.body.get("model"))

    @property
    def streamed(self) -> bool:
        """Whether the answer is wanted as a stream."""
        return bool(self.body.get("stream"))

    @property
    def turns(self) -> list[Turn]:
        """The conversation, system prompts included."""
        return self.api.turns(self.body)

    @property
    def tools(self) -> list[str]:
        """Names of the tools offered."""
        return self.api.tools(self.body)

    @property
    def text(self) -> str:
        """Everything that was said in it."""
        return "\n".join(
            "\n".join([turn.text, *(c[2] for c in turn.calls), *(r[1] for r in turn.results)])
            for turn in self.turns
        )

    @property
    def results(self) -> dict[str, str]:
        """The results of calls by call id."""
        return {key: text for turn in self.turns for key, text in turn.results}


Step = Answer | Failure | Callable[[Request], Answer | Failure]


class Api(Protocol):
    """One of the APIs: how requests are read and checked, and answers written."""

    def turns(self, body: Json) -> list[Turn]: ...

    def tools(self, body: Json) -> list[str]: ...

    def complaint(self, body: Json) -> str | None:
        """What the real server would refuse the request for."""
        ...

    def answer(self, request: Request, answer: Answer, number: int) -> Json: ...

    def stream(self, whole: Json) -> Iterator[tuple[str | None, Json]]:
        """The events of a streamed answer: name and data of each."""
        ...

    def error(self, failure: Failure) -> Json: ...


def halves(text: str) -> Iterator[str]:
    """A text in two pieces, as streams deliver it; nothing of an empty one."""
    middle = (len(text) + 1) // 2
    return (piece for piece in (text[:middle], text[middle:]) if piece)


def now() -> int:
    """The time as the APIs give it."""
    return int(time.time())


def objects(value: Any) -> list[Json]:
    """A JSON list of objects; empty where there is none."""
    return list(value or [])
