"""Questions and answers as typed messages, with their limits. REST, MCP and OpenAPI are derived from them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

MAX_LABEL = 2_000  # characters of a label or a time
MAX_TOP = 1_000  # answers to one question
MAX_POINTS = 2_000  # times of a timeline
MAX_REASONS = 20  # stored facts that explain one answer
MAX_EDGES = 2_000  # facts of a picture of the graph
MAX_FACTS = 100_000  # facts that are remembered or forgotten together
MAX_QUESTIONS = 10_000  # questions that are asked together
MAX_ANSWERS = 100_000  # answers to questions that are asked together

Text = Annotated[str, Meta(max_length=MAX_LABEL)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)]
InclusiveEnd = Annotated[bool, Meta(description="Facts still hold at their end.")]
Time = Annotated[
    str,
    Meta(max_length=MAX_LABEL, description="A time, a period such as 2014 of daily data, or a range FIRST..LAST."),
]
AsOf = Annotated[
    str, Meta(max_length=MAX_LABEL, description="What held then; of a period, its end. By default the last time.")
]
Top = Annotated[int, Meta(ge=1, le=MAX_TOP, description="Number of answers at most.")]
Reasons = Annotated[
    int, Meta(ge=0, le=MAX_REASONS, description="Number of stored facts that explain each predicted answer.")
]
KnownAt = Annotated[
    str, Meta(max_length=MAX_LABEL, description="Only what was remembered by this moment, in UTC, counts.")
]
Include = Literal["all", "stored", "predicted"]
Kind = Literal["entity", "predicate", "time"]
Status = Literal["stored", "predicted"]
Probability = Annotated[float, Meta(ge=0, le=1)]


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question or an answer; fields that are not known are refused."""


# -- questions --------------------------------------------------------------------------------------------------------


class Recall(Message, frozen=True):
    """Give all parts of a fact but one, which is asked for."""

    subject: Text | None = None
    predicate: Text | None = None
    object: Text | None = None
    time: Time | None = None
    top: Top = 10
    include: Include = "all"
    explain: Reasons = 0
    known_at: KnownAt | None = None


class Question(Message, frozen=True):
    """One of several questions: all parts of a fact but one, which is asked for."""

    subject: Text | None = None
    predicate: Text | None = None
    object: Text | None = None
    time: Time | None = None


class RecallMany(Message, frozen=True):
    """Questions that are asked together; different ones may leave out different parts."""

    questions: Annotated[list[Question], Meta(min_length=1, max_length=MAX_QUESTIONS)]
    top: Top = 10
    include: Include = "all"
    explain: Reasons = 0
    known_at: KnownAt | None = None


class Know(Message, frozen=True):
    """Give any parts of the facts that are wanted."""

    subject: Text | None = None
    predicate: Text | None = None
    object: Text | None = None
    as_of: AsOf | None = None
    top: Top = 10
    include: Include = "all"
    known_at: KnownAt | None = None


class Triple(Message, frozen=True):
    """A fact without its time."""

    subject: Text
    predicate: Text
    object: Text
    points: Annotated[int, Meta(ge=2, le=MAX_POINTS, description="Number of times at most.")] = 500
    known_at: KnownAt | None = None


class Why(Message, frozen=True):
    """A fact whose probability is to be explained; the time is left out of semantic memories only."""

    subject: Text
    predicate: Text
    object: Text
    time: Text | None = None
    explain: Reasons = 3
    known_at: KnownAt | None = None


class Completion(Message, frozen=True):
    """The beginning of a label, or any part of it, in lower or upper case."""

    text: Text = ""
    kind: Kind = "entity"
    top: Top = 10


class OneEntity(Message, frozen=True):
    """An entity, whose facts are asked for."""

    label: Text
    as_of: AsOf | None = None
    top: Top = 10
    include: Include = "all"
    known_at: KnownAt | None = None


class Picture(Message, frozen=True):
    """Which part of the graph to show: the facts around an entity, or the newest ones of all."""

    entity: Text | None = None
    as_of: AsOf | None = None
    depth: Annotated[int, Meta(ge=1, le=3, description="Steps from the entity.")] = 1
    top: Annotated[int, Meta(ge=1, le=MAX_EDGES, description="Number of facts at most.")] = 100
    ended: Annotated[
        int, Meta(ge=0, le=MAX_EDGES, description="Number of facts at most that held before, the latest first.")
    ] = 0
    known_at: KnownAt | None = None


class Between(Message, frozen=True):
    """Two times, between which facts began and ended."""

    since: Text
    until: Text | None = None
    entity: Text | None = None
    top: Top = 100
    known_at: KnownAt | None = None


class NewFact(Message, frozen=True):
    """A fact at a time, or from a start to before an end."""

    subject: Name
    predicate: Name
    object: Name
    time: Text | None = None
    start: Text | None = None
    end: Text | None = None


class Remember(Message, frozen=True):
    """Facts to be stored, all or none: each has a time, or a start and an end."""

    facts: Annotated[list[NewFact], Meta(min_length=1, max_length=MAX_FACTS)]
    inclusive_end: InclusiveEnd = False


class Forget(Message, frozen=True):
    """Stored facts to be removed: those with all the given parts, or an entity with everything about it."""

    subject: Text | None = None
    predicate: Text | None = None
    object: Text | None = None
    time: Time | None = None
    start: Text | None = None
    end: Text | None = None
    inclusive_end: InclusiveEnd = False
    entity: Text | None = None
    several: Annotated[bool, Meta(description="Needed to remove an entity, or facts of several triples.")] = False
    preview: Annotated[bool, Meta(description="Return what would be removed, and remove nothing.")] = False


class Undo(Message, frozen=True):
    """An event of the journal that is to be taken back."""

    event: Annotated[int, Meta(ge=1, le=2**53, description="The number of the event.")]


class Since(Message, frozen=True):
    """Two moments, between which facts were remembered and forgotten."""

    since: Annotated[str, Meta(max_length=MAX_LABEL, description="A date or moment, in UTC.")] | None = None
    until: Annotated[str, Meta(max_length=MAX_LABEL, description="A date or moment, in UTC.")] | None = None
    top: Top = 100


# -- answers ----------------------------------------------------------------------------------------------------------


class Fact(Message, frozen=True):
    """A fact by label; those of semantic memories have no time."""

    subject: str
    predicate: str
    object: str
    time: str | None


class Reason(Fact, frozen=True):
    """A stored fact that speaks for an answer, and its share of the evidence."""

    share: float


class Answer(Fact, frozen=True):
    """A fact that is stored, with probability 1, or predicted."""

    score: float | None
    probability: Probability
    status: Status
    why: list[Reason] | None = None
    model_share: float | None = None


class Answers(Message, frozen=True):
    """Answers, the stored ones first; `as_of` is the time that `know` was asked about."""

    answers: list[Answer]
    as_of: str | None = None


class NumberedAnswer(Answer, frozen=True, kw_only=True):
    """An answer to one of several questions, which are numbered from 0."""

    query: int


class ManyAnswers(Message, frozen=True):
    """Answers in the order of their questions, each with the number of its question."""

    answers: list[NumberedAnswer]


class Interval(Message, frozen=True):
    """From the first to the last time at which a fact holds, both included; some stored ones have no end."""

    start: str
    end: str | None
    probability: Probability
    status: Status


class Timeline(Message, frozen=True):
    """The probability of a fact at times in order, and the intervals in which it held."""

    times: list[str]
    probabilities: list[Probability]
    intervals: list[Interval]


class Label(Message, frozen=True):
    """A label and its number of stored facts."""

    label: str
    facts: int


class Labels(Message, frozen=True):
    """Labels that begin with a text, then those that contain it, each by number of facts."""

    labels: list[Label]


class EntityFacts(Message, frozen=True):
    """What holds of an entity as of a time."""

    label: str
    facts: int  # stored with it, at any time
    as_of: str | None
    as_subject: list[Answer]
    as_object: list[Answer]


class Edge(Message, frozen=True):
    """A stored fact from its first to its last time, if it has an end; whether it holds at the time asked about."""

    subject: str
    predicate: str
    object: str
    start: str | None
    end: str | None
    holds: bool


class GraphPart(Message, frozen=True):
    """Stored facts as of a time, and the entities between which they are."""

    as_of: str | None
    nodes: list[Label]
    edges: list[Edge]
    left_out: int  # facts that hold then and are past the limit


class Changes(Message, frozen=True):
    """What began and what ended between two times, the newest first."""

    since: str
    until: str
    began: list[Edge]
    ended: list[Edge]
    left_out: int


class Change(Message, frozen=True):
    """A stored fact, from its first to its last time, that was added or removed; or an entity that was erased."""

    event: int | None
    known_at: str | None
    change: Literal["added", "removed", "erased"]
    subject: str
    predicate: str | None
    object: str | None
    start: str | None
    end: str | None


class Changed(Message, frozen=True):
    """What a change did, or several, the newest last; `left_out` is the number of those past the limit."""

    changes: list[Change]
    left_out: int
    state: str


class ReliabilityBin(Message, frozen=True):
    """Candidates whose probabilities begin with one tenth: their mean probability, and the share that is true."""

    predicted: Probability
    observed: Probability
    candidates: int


class SlotReliability(Message, frozen=True):
    """The reliability of answers for one part of a fact, by tenth."""

    slot: str
    bins: list[ReliabilityBin]


class Reliability(Message, frozen=True):
    """How far probabilities can be relied on, on withheld facts; without such facts there is nothing to measure."""

    status: Literal["measured", "measuring", "none"]
    facts: int  # withheld, of which a sample is asked about
    ahead: bool  # whether they are after all stored times, each asked about with everything before it stored
    slots: list[SlotReliability]


class Times(Message, frozen=True):
    """The time axis: its grain, its first and last time, and how many there are."""

    grain: str
    first: str
    last: str
    count: int


class About(Message, frozen=True):
    """What a memory is."""

    name: str
    entities: int
    predicates: int
    times: Times | None  # of a semantic memory, none
    facts: int
    answers_by: str
    calibrated: list[str]
    forecasts: bool
    explains: bool
    as_of: str | None  # of a semantic memory
    read_only: bool
    state: str
    example: Fact | None


class Problem(Message, frozen=True):
    """What was wrong, as in RFC 9457; `detail` is the sentence that the command line prints."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
