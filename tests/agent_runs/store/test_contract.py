"""What every store of rows does, asked of SQLite and of a real MongoDB."""

import math

import pytest

from control_tower.agent_runs.store.interface import Position, Row, Sort
from control_tower.agent_runs.store.rows import LARGEST_ROW, position
from control_tower.agent_runs.store.where import All, Any, Compare, Contains, Equals, Has, Not, OneOf
from control_tower.errors import ValidationError
from tests.agent_runs.store.conftest import PLAIN, THINGS, Calls, Opener


def ids(rows: list[Row]) -> list[str]:
    return [row.id for row in rows]


def test_a_row_comes_back_as_it_was_given(opener: Opener) -> None:
    row = Row(
        "a",
        {
            "name": "crêpe 🥞 'quoted' \"twice\" $gt {x}",
            "group": "",
            "cost": 0.1,
            "done": False,
            "tags": ["b", "a", "ä.$"],
            "metrics": {"audit/safety.v1": 1 / 3, "$where": -1e300, "": 0, "50%2E": 5e-324},
        },
        {"text": "\ud800 half, \0 and \u2028", "big": 2**70, "$keys": {"a.b": None}, "float": 1.0},
        {"deep": [[[[[{}]]]]], "minus": -(2**63) - 1, "": ""},
    )
    assert opener().insert(THINGS, [row]) == set()

    again = opener().get(THINGS, ["a", "b", "", "\ud800\0"])

    assert again == {"a": row}
    assert type(again["a"].listed["float"]) is float


def test_a_very_deep_document_is_kept(store: Calls) -> None:
    deep: object = "end"
    for _ in range(400):
        deep = {"in": deep}
    store.insert(THINGS, [Row("a", document={"top": deep})])

    assert store.get(THINGS, ["a"])["a"].document == {"top": deep}


def test_rows_are_listed_without_their_documents_unless_asked(store: Calls) -> None:
    store.insert(THINGS, [Row("a", {"name": "n"}, {"shown": 1}, {"all": 2})])

    assert store.find(THINGS) == [Row("a", {"name": "n"}, {"shown": 1})]
    assert store.find(THINGS, documents=True) == [Row("a", {"name": "n"}, {"shown": 1}, {"all": 2})]


@pytest.mark.parametrize("many", [5, 250])
def test_a_part_of_a_text_is_found_whether_few_or_many_have_it(store: Calls, many: int) -> None:
    rows = [
        Row(f"{n:03}", {"name": f"{'Sweep' if n < many else 'other'} {n}", "group": "g", "cost": n % 7})
        for n in range(300)
    ]
    store.insert(THINGS, [*rows, Row("hidden", {"name": "sweep hidden", "group": "h"})])
    where = All((Equals("group", "g"), Contains("name", "sweep")))
    sort = Sort("cost", descending=True)
    wanted = sorted((row for row in rows[:many]), key=lambda row: (row.columns["cost"], row.id), reverse=True)

    first = store.find(THINGS, where, sort=sort, limit=4)
    rest = store.find(THINGS, where, sort=sort, after=position(first[-1], sort), limit=400)

    assert ids(first + rest) == ids(wanted)
    assert store.find(THINGS, All((Equals("group", "h"), Contains("name", "other"))), limit=4) == []


def test_columns_without_a_value_are_left_out(store: Calls) -> None:
    nothing = {"name": None, "cost": None, "done": None, "tags": [], "metrics": {}}
    store.insert(THINGS, [Row("a", nothing)])

    assert store.find(THINGS)[0].columns == {}


def test_texts_in_columns_keep_no_nul_and_no_half_of_a_pair(store: Calls) -> None:
    store.insert(THINGS, [Row("a", {"name": "x\0\udc00y", "tags": ["\ud800"]})])

    assert store.find(THINGS, Equals("name", "x\0\udc00y"))[0].columns["name"] == "x\ufffd\ufffdy"
    assert store.count(THINGS, Has("tags", "\ud800")) == 1


def test_taken_ids_and_unique_values_are_reported_and_the_others_added(store: Calls) -> None:
    store.insert(THINGS, [Row("a", {"name": "n", "group": "g"})])

    taken = store.insert(
        THINGS,
        [
            Row("a", {"name": "other"}),
            Row("b", {"name": "n", "group": "g"}),
            Row("c", {"name": "n", "group": "h"}),
            Row("d", {"name": "n"}),
            Row("e", {"name": "n"}),
            Row("f", {"name": "m", "group": "g"}),
            Row("f", {"name": "l", "group": "g"}),
        ],
    )

    assert taken == {"a", "b", "f"}
    assert ids(store.find(THINGS)) == ["a", "c", "d", "e", "f"]
    assert store.get(THINGS, ["a"])["a"].columns == {"name": "n", "group": "g"}
    assert store.insert(THINGS, []) == set()


def test_a_row_is_changed_only_by_those_who_know_it_as_it_is(store: Calls) -> None:
    store.insert(THINGS, [Row("a", {"name": "n", "tags": ["x"], "metrics": {"m": 1}}, document={"v": 1})])

    assert store.replace(THINGS, Row("a", {"cost": 2, "tags": ["y"]}, {"l": 1}, {"v": 2}, rev=1))
    assert not store.replace(THINGS, Row("a", {"cost": 3}, rev=1))
    assert not store.replace(THINGS, Row("b", {"cost": 3}, rev=1))

    assert store.get(THINGS, ["a"]) == {"a": Row("a", {"cost": 2, "tags": ["y"]}, {"l": 1}, {"v": 2}, rev=2)}
    assert store.count(THINGS, Has("tags", "x")) == 0
    assert store.facet(THINGS, "metrics") == []
    assert store.replace(THINGS, Row("a", rev=2))
    assert store.get(THINGS, ["a"]) == {"a": Row("a", rev=3)}


def test_a_change_to_a_taken_unique_value_changes_nothing(store: Calls) -> None:
    first, second = Row("a", {"name": "n", "group": "g"}), Row("b", {"name": "m", "group": "g"})
    store.insert(THINGS, [first, second])

    assert not store.replace(THINGS, Row("b", {"name": "n", "group": "g", "tags": ["x"]}, rev=1))
    assert store.find(THINGS) == [first, second]


def test_deleted_rows_are_gone_with_all_they_had(store: Calls) -> None:
    rows = [Row(f"{n}", {"cost": n, "tags": ["t"], "metrics": {"m": n}}, document={"n": n}) for n in range(5)]
    store.insert(THINGS, rows)

    assert store.delete(THINGS, Compare("cost", ">=", 2)) == 3
    assert store.delete(THINGS, OneOf("id", ())) == 0
    assert ids(store.find(THINGS)) == ["0", "1"]
    assert store.facet(THINGS, "tags") == [("t", 2)]
    assert store.facet(THINGS, "metrics") == [("m", 2)]
    assert store.insert(THINGS, rows) == {"0", "1"}
    assert store.get(THINGS, ["4"])["4"].document == {"n": 4}
    assert store.delete(THINGS, Has("tags", "t")) == 5
    assert store.count(THINGS) == 0


def test_rows_without_the_sorted_value_come_last_in_both_directions(store: Calls) -> None:
    store.insert(
        THINGS,
        [
            Row("a", {"cost": 2, "metrics": {"m": 0.5}}),
            Row("b"),
            Row("c", {"cost": -1.5, "metrics": {"m": -2, "n": 9}}),
            Row("d", {"metrics": {"n": 1}}),
            Row("e", {"cost": 2, "metrics": {"m": 1e9}}),
        ],
    )

    assert ids(store.find(THINGS, sort=Sort("cost"))) == ["c", "a", "e", "b", "d"]
    assert ids(store.find(THINGS, sort=Sort("cost", descending=True))) == ["e", "a", "c", "d", "b"]
    assert ids(store.find(THINGS, sort=Sort("metrics", key="m"))) == ["c", "a", "e", "b", "d"]
    assert ids(store.find(THINGS, sort=Sort("metrics", True, "m"))) == ["e", "a", "c", "d", "b"]
    assert ids(store.find(THINGS, sort=Sort(descending=True))) == ["e", "d", "c", "b", "a"]
    assert ids(store.find(THINGS, sort=Sort("cost"), skip=4, limit=9)) == ["d"]
    assert ids(store.find(THINGS, sort=Sort("cost"), after=Position(None, "b"))) == ["d"]
    assert ids(store.find(THINGS, sort=Sort("cost"), after=Position(2, "e"), skip=1)) == ["d"]
    assert store.find(THINGS, sort=Sort("cost"), limit=0) == []


def test_texts_are_ordered_by_code_point(store: Calls) -> None:
    texts = ["", " ", "A", "Z", "a", "ab", "z", "~", "ß", "ä", "İ", "ſ", "\ufffc", "🥞", "\U0010ffff"]
    store.insert(THINGS, [Row(f"{n:02}", {"name": text}) for n, text in enumerate(reversed(texts))])

    found = [row.columns["name"] for row in store.find(THINGS, sort=Sort("name"))]

    assert found == sorted(texts) == texts
    assert store.count(THINGS, Compare("name", ">", "z")) == 8


def test_missing_is_neither_empty_nor_zero_nor_false(store: Calls) -> None:
    given = [Row("none"), Row("empty", {"name": "", "cost": 0, "done": False, "tags": [""]})]
    store.insert(THINGS, given)

    for name, value in (("name", ""), ("cost", 0), ("done", False)):
        assert ids(store.find(THINGS, Equals(name, value))) == ["empty"]
        assert ids(store.find(THINGS, Equals(name, None))) == ["none"]
        assert ids(store.find(THINGS, Not(Equals(name, value)))) == ["none"]
        assert ids(store.find(THINGS, Not(Equals(name, None)))) == ["empty"]
        assert ids(store.find(THINGS, Not(OneOf(name, (value,))))) == ["none"]
        assert ids(store.find(THINGS, sort=Sort(name))) == ["empty", "none"]
    assert ids(store.find(THINGS, Contains("name", ""))) == ["empty"]
    assert ids(store.find(THINGS, Contains("tags", ""))) == ["empty"]
    assert ids(store.find(THINGS, Not(Has("tags", "")))) == ["none"]
    assert ids(store.find(THINGS, Not(Compare("cost", "<", 1)))) == ["none"]
    assert store.total(THINGS, "cost", Equals("cost", None)) == 0
    assert store.facet(THINGS, "name") == [("", 1)]
    assert store.facet(THINGS, "done") == [(False, 1)]


def test_a_part_of_a_text_is_found_in_either_case_of_ascii_letters_only(store: Calls) -> None:
    names = {"a": "Straße", "b": "STRASSE", "c": "100% [sic] (a|b)\\d", "d": "Äpfel", "e": "\u212a"}
    store.insert(THINGS, [Row(key, {"name": name, "tags": ["x", name]}) for key, name in names.items()])

    for part, found in {
        "stra": "ab",
        "STRAßE": "a",
        "strasse": "b",
        "0% [S": "c",
        "(A|B)\\D": "c",
        ".": "",
        "^S": "",
        "äp": "",
        "Äp": "d",
        "k": "",
        "\u212a": "e",
        "%": "c",
        "_": "",
        "": "abcde",
    }.items():
        assert "".join(ids(store.find(THINGS, Contains("name", part)))) == found, part
        if part:
            assert "".join(ids(store.find(THINGS, Contains("tags", part)))) == found, part


def test_minus_zero_is_zero(store: Calls) -> None:
    minus, zero = {"cost": -0.0, "metrics": {"m": -0.0}}, {"cost": 0, "metrics": {"m": 0}}
    store.insert(THINGS, [Row("a", minus), Row("b", zero)])

    for zero in (0, -0.0):
        assert store.count(THINGS, Equals("cost", zero)) == 2
        for column, key in (("cost", None), ("metrics", "m")):
            assert store.count(THINGS, Compare(column, ">=", zero, key)) == 2
            assert store.count(THINGS, Compare(column, ">", zero, key)) == 0
            assert store.count(THINGS, Compare(column, "<", zero, key)) == 0
            after = Position(zero, "a")
            assert ids(store.find(THINGS, sort=Sort(column, key=key), after=after)) == ["b"]


def test_of_no_conditions_all_hold_and_none(store: Calls) -> None:
    store.insert(THINGS, [Row("a"), Row("b")])

    assert store.count(THINGS, All()) == 2
    assert store.count(THINGS, Any()) == 0
    assert store.count(THINGS, Not(All())) == 0
    assert store.count(THINGS, Not(Any((Any(), All((Any(),)))))) == 2


def test_facets_count_rows_by_value_the_most_frequent_first(store: Calls) -> None:
    rows = [
        Row("a", {"group": "g", "tags": ["x", "y"], "metrics": {"p": 1, "q.r": 2}}),
        Row("b", {"group": "h", "tags": ["y"], "metrics": {"q.r": 2}}),
        Row("c", {"group": "g", "name": "n"}),
        Row("d", {"name": "n", "tags": ["z"]}),
    ]
    store.insert(THINGS, rows)

    assert store.facet(THINGS, "group") == [("g", 2), ("h", 1)]
    assert store.facet(THINGS, "group", limit=1) == [("g", 2)]
    assert store.facet(THINGS, "tags") == [("y", 2), ("x", 1), ("z", 1)]
    assert store.facet(THINGS, "tags", Equals("group", None)) == [("z", 1)]
    assert store.facet(THINGS, "tags", Equals("group", "g")) == [("x", 1), ("y", 1)]
    assert store.facet(THINGS, "tags", Has("tags", "x")) == [("x", 1), ("y", 1)]
    assert store.facet(THINGS, "tags", Equals("name", None)) == [("y", 2), ("x", 1)]
    assert store.facet(THINGS, "metrics") == [("q.r", 2), ("p", 1)]
    assert store.facet(THINGS, "metrics", Has("tags", "x")) == [("p", 1), ("q.r", 1)]


def test_the_total_is_that_of_rows_with_a_value(store: Calls) -> None:
    store.insert(THINGS, [Row("a", {"cost": 1.5}), Row("b"), Row("c", {"cost": 2, "tags": ["t"]})])

    assert store.total(THINGS, "cost") == 3.5
    assert store.total(THINGS, "cost", Has("tags", "t")) == 2
    assert store.total(THINGS, "cost", Any()) == 0


def test_pages_by_position_neither_repeat_nor_hide_rows_while_others_come_and_go(store: Calls) -> None:
    sort = Sort("name", descending=True)
    store.insert(THINGS, [Row(f"{n}", {"name": f"{n % 3}", "group": f"{n}"}) for n in range(9)])
    first = store.find(THINGS, sort=sort, limit=4)

    store.insert(THINGS, [Row("new", {"name": "9"}), Row("0new", {"name": "0"})])
    store.delete(THINGS, OneOf("id", (first[-1].id, "0")))
    second = store.find(THINGS, sort=sort, after=position(first[-1], sort), limit=9)

    assert ids(first) == ["8", "5", "2", "7"]
    assert ids(second) == ["4", "1", "6", "3", "0new"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Row("x", {"cost": math.nan}), "'x': cost cannot hold nan"),
        (Row("x", {"cost": math.inf}), "'x': cost cannot hold inf"),
        (Row("x", {"cost": 10**400}), "'x': cost cannot hold"),
        (Row("x", {"cost": True}), "'x': cost cannot hold True"),
        (Row("x", {"name": 1}), "'x': name cannot hold 1"),
        (Row("x", {"metrics": {"m": math.nan}}), "'x': metrics cannot hold"),
        (Row("x", document={"v": math.nan}), "'x': is no JSON"),
        (Row("", {}), "is no id"),
        (Row("\ud800", {}), "is no id"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name_and_nothing_is_written(
    store: Calls, row: Row, said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        store.insert(THINGS, [Row("good"), row])
    assert store.count(THINGS) == 0


def test_a_row_that_is_too_large_is_refused_by_name(store: Calls) -> None:
    fits = Row("fits", document={"text": "x" * (LARGEST_ROW - 1000)})
    large = Row("large", {"name": "n"}, document={"text": "x" * LARGEST_ROW})

    assert store.insert(THINGS, [fits]) == set()
    with pytest.raises(ValidationError, match=r"things 'large': holds 15,7.*; a row may hold 15,728,640"):
        store.insert(THINGS, [large])
    with pytest.raises(ValidationError, match="'large'"):
        store.replace(THINGS, large)
    assert store.get(THINGS, ["fits"])["fits"] == fits


@pytest.mark.parametrize(
    "where",
    [
        Equals("no", 1),
        Has("name", "x"),
        Equals("tags", "x"),
        Compare("metrics", ">", 1),
        Contains("cost", "1"),
    ],
)
def test_conditions_that_a_column_cannot_answer_are_mistakes_of_the_caller(store: Calls, where: Any) -> None:
    with pytest.raises(ValueError, match="things"):
        store.find(THINGS, where)


def test_tables_without_indexes_of_their_own_work_too(store: Calls) -> None:
    store.insert(PLAIN, [Row("b", {"tags": ["t"], "name": "n"}), Row("a", {"tags": ["t"], "cost": 1})])

    assert ids(store.find(PLAIN, Has("tags", "t"), sort=Sort("name"))) == ["b", "a"]
    assert store.facet(PLAIN, "tags") == [("t", 2)]


def test_a_store_in_order_has_nothing_to_say_of_itself(store: Calls) -> None:
    assert store.check() == []
