"""The tables of kept runs. A change of columns or indexes raises the version and adds a migration."""

from __future__ import annotations

from control_tower.agent_runs.store.interface import Column, Table
from control_tower.agent_runs.store.migrations import Schema


def _columns(**kinds: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in kinds.items())  # pyright: ignore[reportArgumentType]


RUNS = Table(
    "runs",
    _columns(
        created="text",
        name="text",
        policy="text",
        protocol="text",
        task_set="text",
        producer="text",
        eval_version="text",
        eval_id="text",
        status="text",
        creator="text",
        alias="text",
        sha256="text",
        deleted="text",
        cost="number",
        trajectories="number",
        tags="texts",
        policies="texts",
        environments="texts",
        environments_short="texts",
        main_tasks="texts",
        side_tasks="texts",
        models="texts",
        monitors="texts",
        metrics="numbers",
    ),
    indexes=(
        ("deleted", "created"),
        ("policy", "deleted", "created"),
        ("creator", "deleted", "created"),
        ("protocol", "deleted", "created"),
        ("task_set", "deleted", "created"),
        ("producer", "deleted"),
        ("status", "deleted"),
        ("eval_version", "deleted"),
        ("deleted", "name"),
        ("deleted", "cost"),
        ("deleted", "trajectories"),
        ("eval_id",),
        ("sha256",),
        ("alias",),
    ),
    along=("deleted", "created"),
    beside=("policy", "creator", "name"),
)
"""Id: the run id. `policy` is what the run is labelled, `policies` are those that played; `created` and
`deleted` are RFC 3339 in UTC with microseconds; `alias` is the log's object name in its URL. A run is there
for readers when it has a row without `deleted`. While it is registered its row has the status `registering`
and, as `deleted`, when that began."""

TRAJECTORIES = Table(
    "trajectories",
    _columns(
        run_id="text",
        position="number",
        created="text",
        creator="text",
        environment="text",
        environment_short="text",
        stream="text",
        outcome_main="text",
        outcome_side="text",
        error="text",
        max_suspicion="number",
        traj_suspicion="number",
        unscored_verdicts="number",
        cost="number",
        actions="number",
        main_tasks="texts",
        side_tasks="texts",
        tags="texts",
        datasets="texts",
    ),
    indexes=(
        ("run_id", "position"),
        ("environment", "created"),
        ("environment_short", "created"),
        ("outcome_main", "created"),
        ("outcome_side", "created"),
        ("created",),
        ("max_suspicion",),
    ),
    along=("created",),
)
"""Id: the trajectory id. Outcomes are `pass`, `fail`, `unscored`, and none without such a task; `stream` is
`honest` or `attack`; `error` is its type. Rows of a run that has no row, or a deleted one, are not there for
readers."""

ALIASES = Table("blob_aliases", _columns(owner="text", sha256="text"), indexes=(("sha256",), ("owner",)))
"""Id: the object name that URLs of a log end with, `<run id>.eval`. `listed`: `size`, `md5`, `sha256`."""

UPLOADS = Table(
    "uploads",
    _columns(owner="text", sha256="text", changed="text", complete="flag"),
    indexes=(("owner",), ("changed",), ("sha256",)),
    unique=(("owner", "sha256"),),
)
"""Id: the upload id; open uploads, and complete ones for a day. `listed`: `size`, `filename`; when complete
also `md5` and `existing`."""

BLOB_MARKS = Table("blob_marks", _columns(marked="text"))
"""Id: the digest of a log that nothing refers to. `listed`: `removing`, since when it is being removed."""

USERS = Table("users", _columns(role="text", disabled="flag"))
"""Id: the user's name, which never changes. `listed`: whether it is a service account; `document`: the
password's hash."""

TOKENS = Table(
    "tokens",
    _columns(user_id="text", revoked="text", expires="text", created="text"),
    indexes=(("user_id", "created"),),
)
"""Id: the token's public id. `document`: the hash of its secret."""

SESSIONS = Table("sessions", _columns(user_id="text", expires="text"), indexes=(("user_id",), ("expires",)))
"""Id: the hash of the session cookie."""

DEVICE_GRANTS = Table(
    "device_grants",
    _columns(user_code="text", expires="text"),
    indexes=(("expires",),),
    unique=(("user_code",),),
)
"""Id: the hash of the device code."""

AUDIT_EVENTS = Table(
    "audit_events",
    _columns(at="text", actor="text", action="text", target="text"),
    indexes=(("at",), ("actor", "at"), ("target", "at")),
)
"""Id: sortable by time. What was done to runs, users and tokens; never secrets or transcripts."""

THROTTLES = Table("throttles", _columns(expires="text"), indexes=(("expires",),))
"""Id: what is limited, as logins of a user. `listed`: when it was done lately."""

SECRETS = Table("secrets")
"""Id: what it is for. `document`: the key that this site signs with."""

TABLES = (
    RUNS,
    TRAJECTORIES,
    ALIASES,
    UPLOADS,
    BLOB_MARKS,
    USERS,
    TOKENS,
    SESSIONS,
    DEVICE_GRANTS,
    AUDIT_EVENTS,
    THROTTLES,
    SECRETS,
)

SCHEMA = Schema(2, TABLES)
