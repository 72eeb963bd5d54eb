"""The seat: the model the harness talks to, whose every answer is what blue decided.

A harness asks the model `eval/<untrusted model>` in role `untrusted`; behind it the untrusted model is
asked (role `hidden_untrusted`), blue looks at the drafts and decides. So a log shows each decision as
one model event, with the calls that led to it after its start and no usage of its own.
"""

from inspect_ai.model import GenerateConfig, Model, get_model, modelapi

from control_tower.game.answering import NO_QUEUE, Answer, AnsweringModel
from control_tower.inspect_private import with_role

SEAT_PROVIDER = "eval"
SEAT_ROLE = "untrusted"


@modelapi(name=SEAT_PROVIDER)
class Seat(AnsweringModel):
    """A model provider that answers with a decision instead of calling a model."""

    def connection_key(self) -> str:
        """One queue for all seats, which never fills."""
        return SEAT_PROVIDER


def seat_model(untrusted: Model, decide: Answer) -> Model:
    """The seat over `untrusted`, for one sample."""
    model = get_model(
        f"{SEAT_PROVIDER}/{untrusted}",
        memoize=False,
        config=GenerateConfig(max_connections=NO_QUEUE),
        answer=decide,
    )
    return with_role(model, SEAT_ROLE)
