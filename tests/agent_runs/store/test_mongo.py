"""A MongoDB that is away, hangs or goes away: an error soon, which names the server and no password."""

import socket
import time
from pathlib import Path

import pymongo
import pytest

from control_tower.agent_runs.store.interface import Row
from control_tower.agent_runs.store.mongo import MongoStore
from control_tower.errors import OperationError, StateError, ValidationError
from tests.agent_runs.store.conftest import SCHEMA, THINGS, Calls
from tests.support.mongod import Mongod, running


@pytest.mark.parametrize("listens", [False, True])
def test_a_server_that_does_not_answer_is_named_without_its_password(listens: bool) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        port = server.getsockname()[1]
        store = Calls(MongoStore(f"mongodb://user:pa55word@127.0.0.1:{port}/runs", SCHEMA, wait=0.5))

        begun = time.monotonic()
        with pytest.raises(OperationError) as error:
            store.open()

        assert str(error.value) == f"MongoDB at 127.0.0.1:{port}: cannot be reached; is it running?"
        assert time.monotonic() - begun < 20


@pytest.mark.slow
def test_nobody_waits_longer_than_twenty_seconds_for_a_server() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        store = Calls(MongoStore(f"mongodb://127.0.0.1:{server.getsockname()[1]}/runs", SCHEMA))
        begun = time.monotonic()
        with pytest.raises(OperationError, match="cannot be reached"):
            store.open()
        assert time.monotonic() - begun < 20


@pytest.mark.slow
def test_a_server_that_goes_away_and_comes_back_is_used_again(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        store = Calls(MongoStore(server.uri("runs"), SCHEMA, wait=1))
        store.open()
        store.insert(THINGS, [Row("a")])
        server.stop()

        for call in (
            lambda: store.get(THINGS, ["a"]),
            lambda: store.insert(THINGS, [Row("b")]),
            lambda: store.count(THINGS),
        ):
            with pytest.raises(
                OperationError, match=f"MongoDB at 127.0.0.1:{server.port}: cannot be reached"
            ):
                call()

        server.start()
        assert store.get(THINGS, ["a"]) == {"a": Row("a")}
        assert store.insert(THINGS, [Row("a"), Row("b")]) == {"a"}
        store.close()


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("mongodb://127.0.0.1:1", "MongoDB at 127.0.0.1:1: MONGOURI names no database; add one: "),
        ("mongodb://127.0.0.1:1/?w=2", "MongoDB at 127.0.0.1:1: MONGOURI names no database"),
        ("127.0.0.1:27017/runs", "MONGOURI: is no address of a MongoDB; write mongodb://HOST:PORT/DATABASE"),
        ("mongodb://us:er:pa55@h/runs", "MONGOURI: is no address of a MongoDB"),
        ("mongodb://host:port/runs", "MONGOURI: is no address of a MongoDB"),
        ("", "MONGOURI: is no address of a MongoDB"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(uri: str, said: str) -> None:
    with pytest.raises(ValidationError) as error:
        Calls(MongoStore(uri, SCHEMA)).open()
    assert str(error.value).startswith(said)
    assert "pa55" not in str(error.value)


def test_collections_of_something_else_are_left_alone(mongod: Mongod) -> None:
    uri = mongod.uri("another")
    with pymongo.MongoClient[dict[str, object]](uri) as client:
        client["another"]["things"].insert_one({"_id": 1, "mine": True})

    with pytest.raises(
        StateError, match="the database 'another' has a collection 'things' of something else"
    ):
        Calls(MongoStore(uri, SCHEMA)).open()


def test_a_store_that_is_not_open_says_so() -> None:
    with pytest.raises(StateError, match="is not open"):
        Calls(MongoStore("mongodb://127.0.0.1:1/runs", SCHEMA)).count(THINGS)
