"""The commands of an online market, from opening to the released model, as a user meets them."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from convexmarket.cli.online import EXAMPLES
from convexmarket.lab.kinds.online_market import market as online_market
from convexmarket.online.lists import quote_list
from convexmarket.online.market import OnlineMarket
from convexmarket.privacy import objective_perturbation_guarantee
from convexmarket.report import figures, format_number
from tests import PROBLEMS
from tests.cli import builders
from tests.cli.builders import draw_nothing
from tests.cli.builders import plain as said
from tests.online.builders import TRAINED_MARKET

CLINIC = PROBLEMS / "online-clinic"

PROBLEM = TRAINED_MARKET.replace("A small", "A <small>").replace(
    "[learner]", 'test = "test.csv"\n[learner]'
)
ROWS = """id,one,two,label
a,0.5,0.5,yes
b,-0.5,0.1,no
c,0.3,-0.2,yes
d,-0.1,-0.6,no
e,0.2,0.2,yes
f,0.6,0.1,yes
"""
TEST = "one,two,label\n0.4,0.4,yes\n-0.4,-0.3,no\n-0.2,-0.2,no\n"
ARRIVALS = "id,sensitivity\na,1.1\nb,1.5\nc,1.6\nd,4.9\ne,1.2\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Change to a folder with a problem, its rows and a list of arrivals."""
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("market.toml", PROBLEM),
        ("rows.csv", ROWS),
        ("test.csv", TEST),
        ("arrivals.csv", ARRIVALS),
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def opened(here):
    """Open a market in the folder m."""
    assert invoke("open", "m", "market.toml").exit_code == 0
    return here


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    monkeypatch.setattr(figures, "saved", draw_nothing)


def invoke(*arguments: str):
    return builders.invoke("online", *arguments)


def quoted(folder: str = "m") -> pd.DataFrame:
    with OnlineMarket(folder) as market:
        return market.offers()


def refused(*arguments: str) -> str:
    """Return the one line that a command ends with when it refuses; the market is as before."""
    before = quoted() if Path("m/market.sqlite").exists() else None
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.output
    if before is not None:
        pd.testing.assert_frame_equal(quoted(), before)
    else:
        assert not Path("m/market.sqlite").exists()
    return said(done.stderr).removeprefix("error: ")


def sell_everything() -> None:
    """Quote the list, and let everybody accept who is offered something."""
    assert invoke("quote", "m", "--csv", "arrivals.csv", "--out", "offers.csv").exit_code == 0
    offers = pd.read_csv("offers.csv")
    offers[offers.epsilon > 0][["id"]].to_csv("accepted.csv", index=False)
    assert invoke("answer", "m", "--accept", "--csv", "accepted.csv").exit_code == 0


def test_the_commands_in_the_help_text_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CLINIC, tmp_path / "problems" / "online-clinic")
    lines = [line.strip() for line in EXAMPLES.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("convexmarket ")]
    assert [command[2] for command in commands][-2:] == ["status", "close"]
    for command in commands:
        done = builders.invoke(*command[1:])
        assert done.exit_code == 0, done.output


# ---------------------------------------------------------------------------------------- open


def test_open_says_the_terms(here):
    done = invoke("open", "m", "market.toml", "--set", "buyer.cap=3.0")
    assert done.exit_code == 0, done.output
    text = said(done.stdout)
    for words in ("sellers expected 8", "total privacy eta", "nothing is bought from a virtual"):
        assert words in text
    assert "tells what its seller reported" in said(done.stderr)
    with OnlineMarket("m") as market:
        assert market.policy.cap == 3.0
        assert market.counts()["quoted"] == 0
        assert online_market.problem_of(market).buyer.cap == 3.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (['buyer.rule="algorithm-3"'], "prior, buyer and plan make no market"),
        (['data.test="none.csv"'], "none.csv: No such file or directory"),
        (
            ['data.classes=["no", "maybe"]'],
            "line 2: the cell of the column 'label' is none of",
        ),
        (['data.label="result"'], "no column is called 'result'"),
        (["data.features={three=[0, 1]}"], "no column is called 'three'"),
        (["plan.first=5"], "plan: first and growth say when new plans are made"),
    ],
)
@pytest.mark.usefixtures("here")
def test_open_checks_everything_first(settings, words):
    changes = [part for setting in settings for part in ("--set", setting)]
    assert words in refused("open", "m", "market.toml", *changes)


BAD_ROWS = [
    (ROWS + "a,0.1,0.1,no\n", "rows.csv: line 8: 'a' is the id of an earlier line"),
    (ROWS + ",0.1,0.1,no\n", "rows.csv: line 8: the id (column 'id') is missing"),
    (ROWS + "g,0.1,nan,no\n", "line 8: the cell of the column 'two' of 'g' is no finite number"),
    ("id,one,label\n", "no column is called 'two'"),
    ("", "the file is empty"),
]


def test_close_names_the_bad_line_of_the_rows(opened):
    sell_everything()
    for rows, words in BAD_ROWS:
        (opened / "rows.csv").write_text(rows)
        assert words in refused("close", "m")
    (opened / "rows.csv").write_text(ROWS)
    assert invoke("close", "m").exit_code == 0


def test_private_rows_are_not_read_before_the_market_closes(here):
    (here / "rows.csv").unlink()
    done = invoke("open", "m", "market.toml")
    assert done.exit_code == 0
    assert "rows.csv is not there yet" in said(done.stdout)
    sell_everything()
    assert "rows.csv" in refused("close", "m")


def test_open_reads_the_public_rows(here):
    (here / "test.csv").write_text("id,one,two\n")
    assert "test.csv: no column is called" in refused("open", "m", "market.toml")


@pytest.mark.usefixtures("opened")
def test_a_folder_holds_one_market():
    assert "there is a market in m already" in refused("open", "m", "market.toml")


def test_another_kind_of_problem_is_refused(here):
    other = PROBLEMS / "quickstart.toml"
    assert 'an online market needs "online-market"' in refused("open", "m", str(other))


# --------------------------------------------------------------------------------------- quote


@pytest.mark.usefixtures("opened")
def test_quote_says_the_offer_in_words_and_as_json():
    words = said(invoke("quote", "m", "--id", "a", "--sensitivity", "1.1").stdout)
    line = invoke("quote", "m", "--id", "a", "--sensitivity", "1.1", "--json").stdout
    offer = json.loads(line)
    with OnlineMarket("m") as market:
        terms = market.policy.quote(1.1)
    assert (offer["epsilon"], offer["payment"]) == terms
    assert (offer["id"], offer["number"], offer["status"]) == ("a", 1, "offered")
    assert f"payment {offer['payment']:.6g} for a guarantee of epsilon" in words
    assert f"exp(epsilon) = {format_number(np.exp(offer['epsilon']))} times" in words
    nothing = said(invoke("quote", "m", "--id", "d", "--sensitivity", "4.9").stdout)
    assert "nothing is bought" in nothing
    assert list(quoted()["id"]) == ["a", "d"]


BAD_QUOTES = [
    (["--id", "a", "--sensitivity", "1.2"], "a seller is quoted once"),
    (["--id", "z", "--sensitivity", "0.5"], "not in the support [1, 5]"),
    (["--id", "z", "--sensitivity", "nan"], "sensitivity must be a finite number >= 0, got nan"),
    (["--id", " z", "--sensitivity", "2"], "begins or ends with a blank"),
    (["--id", "z"], "give --id and --sensitivity of a seller, or --csv"),
    ([], "give --id and --sensitivity of a seller, or --csv"),
    (["--id", "z", "--csv", "arrivals.csv"], "--csv and --id exclude each other"),
    (["--json", "--csv", "arrivals.csv"], "--csv and --json exclude each other"),
    (["--id", "z", "--sensitivity", "2", "--out", "o.csv"], "--out goes with --csv"),
    (["--csv", "none.csv"], "none.csv: No such file"),
    (["--csv", "arrivals.csv", "--id-column", "who"], "Name one of them with --id-column"),
    (["--csv", "arrivals.csv", "--out", "arrivals.csv"], "is the list of arrivals"),
    (["--csv", "arrivals.csv", "--out", "m"], "--out m is a folder"),
]


@pytest.mark.usefixtures("opened")
def test_quote_refuses_in_one_line_and_changes_nothing():
    assert invoke("quote", "m", "--id", "a", "--sensitivity", "1.1").exit_code == 0
    for arguments, words in BAD_QUOTES:
        assert words in refused("quote", "m", *arguments)
        assert not Path("o.csv").exists()


@pytest.mark.parametrize("command", ["quote", "answer", "status", "close"])
@pytest.mark.usefixtures("here")
def test_a_folder_without_a_market(command):
    extra = {"quote": ["--id", "a", "--sensitivity", "2"], "answer": ["--accept", "--id", "a"]}
    words = refused(command, "nowhere", *extra.get(command, []))
    assert "there is no market in nowhere" in words
    assert not Path("nowhere").exists()


# --------------------------------------------------------------------------------------- lists


@pytest.mark.usefixtures("opened")
def test_a_list_is_quoted_in_its_order():
    done = invoke("quote", "m", "--csv", "arrivals.csv", "--out", "offers.csv")
    assert done.exit_code == 0, done.output
    assert "quoted 5" in said(done.stdout)
    written, stored = pd.read_csv("offers.csv"), quoted()
    assert list(written["id"]) == list("abcde")
    assert list(written["number"]) == [1, 2, 3, 4, 5]
    pd.testing.assert_series_equal(written["epsilon"], stored["epsilon"])
    pd.testing.assert_series_equal(written["payment"], stored["payment"])
    assert written["status"].tolist()[3] == "nothing bought"


def test_columns_of_a_list_may_be_named(opened):
    (opened / "survey.csv").write_text("patient;asks\nAnn;1,5\nBob;2,5\n")
    named = ["--id-column", "patient", "--sensitivity-column", "asks"]
    assert invoke("quote", "m", "--csv", "survey.csv", *named).exit_code == 0
    assert quoted()["sensitivity"].tolist() == [1.5, 2.5]


@pytest.mark.usefixtures("opened")
def test_a_list_that_was_interrupted_goes_on():
    def interrupt(stage, done, total):
        if done == 3:
            raise KeyboardInterrupt

    with OnlineMarket("m") as market, pytest.raises(KeyboardInterrupt):
        quote_list(market, "arrivals.csv", progress=interrupt)
    before = quoted()
    assert len(before) >= 3
    done = invoke("quote", "m", "--csv", "arrivals.csv", "--out", "offers.csv")
    assert done.exit_code == 0, done.output
    after = quoted()
    pd.testing.assert_frame_equal(after.head(len(before)), before)
    assert list(after["id"]) == list("abcde")
    assert f"of them before, at the same terms {len(before)}" in said(done.stdout)
    assert list(pd.read_csv("offers.csv")["id"]) == list("abcde")


BAD_LISTS = [
    (ARRIVALS + "z,abc\n", "arrivals.csv: line 7: the report is not a number"),
    (ARRIVALS + "z,0.5\n", "line 7: the report is outside the support"),
    (ARRIVALS + "a,1.1\n", "line 7: 'a' is the id of an earlier seller"),
    (ARRIVALS + ",1.1\n", "line 7: '' is no id"),
    (ARRIVALS + "z ,1.1\n", "line 7: id 'z ' begins or ends with a blank"),
    (ARRIVALS + "first,1.3\n", "line 7: 'first' reports another sensitivity here"),
    ("id,sensitivity\n", "the list has a header and no sellers"),
]


def test_a_bad_list_quotes_nobody(opened):
    assert invoke("quote", "m", "--id", "first", "--sensitivity", "1.1").exit_code == 0
    for text, words in BAD_LISTS:
        (opened / "arrivals.csv").write_text(text)
        assert words in refused("quote", "m", "--csv", "arrivals.csv")


def test_more_sellers_than_expected_are_turned_away_and_counted(opened):
    (opened / "many.csv").write_text("id,sensitivity\n" + "".join(f"s{k},2\n" for k in range(11)))
    for _ in range(2):  # the second time all was done before
        done = invoke("quote", "m", "--csv", "many.csv", "--out", "offers.csv", "--force")
        assert done.exit_code == 3, done.output
        assert "3 sellers were turned away" in said(done.stderr)
        assert "quoted 8" in said(done.stdout)
        assert list(pd.read_csv("offers.csv")["id"]) == [f"s{k}" for k in range(8)]
    assert len(quoted()) == 8
    assert "8 sellers were expected" in refused("quote", "m", "--id", "z", "--sensitivity", "2")
    assert "full: answers are taken" in said(invoke("status", "m").stdout)


# ------------------------------------------------------------------------------------- answers


def test_the_file_of_a_quoted_list_is_accepted_as_it_is(opened):
    """Who was offered nothing is in it, and passed over."""
    invoke("quote", "m", "--csv", "arrivals.csv", "--out", "offers.csv")
    offers = pd.read_csv("offers.csv")
    sold = offers[offers.epsilon > 0]
    assert 0 < len(sold) < len(offers)
    done = invoke("answer", "m", "--accept", "--csv", "offers.csv")
    assert done.exit_code == 0, done.output
    assert f"{len(sold)} sellers: accepted" in said(done.stdout)
    with OnlineMarket(Path("m")) as market:
        statuses = market.offers().set_index("id")["status"]
    assert set(statuses[sold.id]) == {"accepted"}
    assert set(statuses[offers[offers.epsilon == 0].id]) == {"nothing bought"}
    assert invoke("answer", "m", "--accept", "--csv", "offers.csv").exit_code == 0
    assert "has accepted already" in refused("answer", "m", "--decline", "--csv", "offers.csv")


def resaved(path: str, separator: str) -> None:
    """Save a file again as a spreadsheet with decimal commas does, nine digits of each number."""
    table = pd.read_csv(path)
    for column in table.select_dtypes("number"):
        table[column] = [f"{number:.9g}".replace(".", ",") for number in table[column]]
    text = table.to_csv(index=False, sep=separator, lineterminator="\r\n")
    Path(path).write_text(text, encoding="utf-8-sig", newline="")


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.usefixtures("opened")
def test_a_file_of_offers_is_accepted_after_a_german_spreadsheet_saved_it(separator):
    invoke("quote", "m", "--csv", "arrivals.csv", "--out", "offers.csv")
    resaved("offers.csv", separator)
    header, first = Path("offers.csv").read_text("utf-8-sig").splitlines()[:2]
    assert header.split(separator)[:3] == ["id", "number", "sensitivity"]
    assert first.startswith(separator.join(["a", "1", "1,1", ""]))
    done = invoke("answer", "m", "--accept", "--csv", "offers.csv")
    assert done.exit_code == 0, done.output
    assert "4 sellers: accepted" in said(done.stdout)
    resaved("arrivals.csv", separator)
    again = invoke("quote", "m", "--csv", "arrivals.csv")
    assert "of them before, at the same terms 5" in said(again.stdout)


@pytest.mark.usefixtures("opened")
def test_a_file_whose_lines_a_spreadsheet_left_whole_is_refused_with_the_remedy():
    invoke("quote", "m", "--csv", "arrivals.csv", "--out", "offers.csv")
    lines = Path("offers.csv").read_text().replace('"', "").splitlines()
    Path("offers.csv").write_text("".join(f'"{line}"\r\n' for line in lines))
    assert "each line of the file is one quoted cell" in refused(
        "answer", "m", "--accept", "--csv", "offers.csv"
    )


def test_a_list_of_nothing_has_no_answer(opened):
    invoke("quote", "m", "--csv", "arrivals.csv", "--out", "offers.csv")
    offers = pd.read_csv("offers.csv")
    offers[offers.epsilon == 0].to_csv("none.csv", index=False)
    assert "nobody in it was offered anything" in refused(
        "answer", "m", "--accept", "--csv", "none.csv"
    )


@pytest.mark.usefixtures("opened")
def test_answers_are_recorded_once():
    for seller in ("a", "b"):
        assert invoke("quote", "m", "--id", seller, "--sensitivity", "1.1").exit_code == 0
    assert "The seller has accepted" in said(invoke("answer", "m", "--accept", "--id", "a").stdout)
    assert "The seller has accepted" in said(invoke("answer", "m", "--accept", "--id", "a").stdout)
    assert "The seller has declined" in said(invoke("answer", "m", "--decline", "--id", "b").stdout)
    assert quoted()["status"].tolist() == ["accepted", "declined"]
    assert "the first answer stands" in refused("answer", "m", "--decline", "--id", "a")
    assert "never quoted" in refused("answer", "m", "--accept", "--id", "z")
    assert "give --id of a seller, or --csv" in refused("answer", "m", "--accept")
    assert "--csv and --id exclude" in refused(
        "answer", "m", "--accept", "--id", "a", "--csv", "x.csv"
    )
    assert "--id-column goes with --csv" in refused(
        "answer", "m", "--accept", "--id", "a", "--id-column", "x"
    )


BAD_ANSWERS = [
    ("b z", "line 3: 'z' was not quoted"),
    ("b d", "line 3: 'd' was offered nothing"),
    ("b c", "line 3: 'c' has declined already"),
    ("b b", "line 3: 'b' is the id of an earlier line"),
    ("", "there is no id in it"),
]


def test_a_list_of_answers_is_checked_as_a_whole(opened):
    assert invoke("quote", "m", "--csv", "arrivals.csv").exit_code == 0
    assert invoke("answer", "m", "--decline", "--id", "c").exit_code == 0
    for ids, words in BAD_ANSWERS:
        (opened / "answers.csv").write_text("\n".join(["id", *ids.split()]) + "\n")
        assert words in refused("answer", "m", "--accept", "--csv", "answers.csv")
        assert "accepted" not in set(quoted()["status"])


@pytest.mark.usefixtures("opened")
def test_status_counts_and_sums():
    assert "quoted 0 of 8 expected (0.0%)." in said(invoke("status", "m").stdout)
    sell_everything()
    text, offers = said(invoke("status", "m").stdout), quoted()
    sold = offers[offers["status"] == "accepted"]
    assert "quoted 5 of 8 expected (62.5%)" in text
    assert f"accepted {len(sold)}" in text
    assert f"privacy sold, eta {sold['epsilon'].sum():.4g}" in text
    assert f"payments promised {sold['payment'].sum():.4g}" in text
    assert "the market is open" in text


# --------------------------------------------------------------------------------------- close


def test_close_trains_under_exactly_what_was_sold(opened):
    sell_everything()
    done = invoke("close", "m")
    assert done.exit_code == 0, done.output
    report = opened / "m" / "report"
    assert str(report / "index.html") in done.stdout.replace("\n", "")
    assert "In this market 4 of 8 expected sellers sold" in said(done.stdout)
    model = json.loads((report / "model.json").read_text())
    offers = quoted()
    sold = offers[offers["status"] == "accepted"].set_index("id")["epsilon"]
    assert model["classes"] == ["no", "yes"]
    assert model["features"] == ["one", "two", "intercept"]
    assert model["guarantees"].keys() == set(sold.index)
    kept = pd.Series(model["guarantees"])[sold.index]
    assert (kept <= sold).all()
    paid = model["epsilon_of_the_second_noise"]
    assert 0 < paid < 1e-3 * sold.min()
    assert (kept / sold).max() == pytest.approx(1.0, rel=1e-9)
    assert model["rows_not_used"] == 2  # d sold nothing, f never came
    weights = (sold / sold.sum()).to_numpy()
    proven = objective_perturbation_guarantee(
        weights, model["eta_of_the_noise"], 1.0, minimum_epsilon=paid
    )
    np.testing.assert_allclose(kept, proven, rtol=1e-12)
    assert any("fresh seed" in words for words in model["assumptions"])
    assert any("second noise" in words for words in model["assumptions"])
    assert not any("read no finer" in words for words in model["assumptions"])


def test_closing_again_gives_the_same_model_and_never_trains(opened, monkeypatch):
    sell_everything()
    assert invoke("close", "m", "--out", "one").exit_code == 0

    def never(*arguments, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr(online_market, "release_model", never)
    monkeypatch.setattr(online_market, "owned_rows", never)
    (opened / "rows.csv").unlink()  # the rows are not needed any more
    for _ in range(2):
        done = invoke("close", "m", "--out", "two")
        assert done.exit_code == 0, done.output
    with OnlineMarket("m") as market:
        for name in ("one", "two"):
            assert (opened / name / "model.json").read_text("utf-8") == market.released
    assert "was closed" in refused("quote", "m", "--id", "z", "--sensitivity", "2")
    (opened / "more.csv").write_text(ARRIVALS + "z,2.0\n")
    assert "1 sellers of more.csv were not" in refused("quote", "m", "--csv", "more.csv")
    assert invoke("quote", "m", "--csv", "arrivals.csv").exit_code == 0
    assert "the market is closed" in said(invoke("status", "m").stdout)


@pytest.mark.usefixtures("opened")
def test_unanswered_offers_hold_a_market_open_unless_they_lapse():
    assert invoke("quote", "m", "--csv", "arrivals.csv").exit_code == 0
    assert invoke("answer", "m", "--accept", "--id", "a").exit_code == 0
    assert "offers without an answer: 3 (b, c, e); accept" in refused("close", "m")
    done = invoke("close", "m", "--lapse")
    assert done.exit_code == 0, done.output
    assert quoted()["status"].tolist()[:2] == ["accepted", "declined"]


@pytest.mark.usefixtures("opened")
def test_a_market_in_which_nobody_accepted_stays_open():
    assert "nobody accepted an offer" in refused("close", "m")
    assert invoke("quote", "m", "--csv", "arrivals.csv").exit_code == 0
    assert "nobody accepted an offer" in refused("close", "m", "--lapse")
    assert invoke("answer", "m", "--accept", "--id", "a").exit_code == 0
    assert invoke("quote", "m", "--id", "late", "--sensitivity", "3").exit_code == 0


def test_a_folder_that_is_no_report_is_refused_before_the_market_closes(opened):
    sell_everything()
    assert "and no results.json of a report" in refused("close", "m", "--out", str(opened / "m"))
    with OnlineMarket("m") as market:
        assert not market.is_closed


def test_sellers_without_a_row_are_named_and_the_market_stays_open(opened):
    sell_everything()
    (opened / "rows.csv").write_text("\n".join(ROWS.splitlines()[:3]) + "\n")
    words = refused("close", "m")
    assert "2 of 4 sellers who accepted have no row (c, e)" in words
    assert not (opened / "m" / "report").exists()
    (opened / "rows.csv").write_text(ROWS)
    assert invoke("close", "m").exit_code == 0


def test_a_seller_whose_row_never_came_can_be_left_out(opened):
    sell_everything()
    (opened / "rows.csv").write_text("\n".join(ROWS.splitlines()[:3]) + "\n")
    assert "leave_out has 'z', who accepted no offer" in refused("close", "m", "--leave-out", "z")
    assert "1 of 3 sellers who accepted have no row (e)" in refused(
        "close", "m", "--leave-out", "c"
    )
    done = invoke("close", "m", "--leave-out", "c", "--leave-out", "e")
    assert done.exit_code == 0, done.output
    model = json.loads((opened / "m/report/model.json").read_text())
    assert model["left_out"] == ["c", "e"]
    sold = quoted().set_index("id")["epsilon"]
    assert model["guarantees"].keys() == {"a", "b"}
    share = model["epsilon_of_the_second_noise"] / min(sold["a"], sold["b"])
    for who, guarantee in model["guarantees"].items():
        assert (0.99 - share) * sold[who] < guarantee <= sold[who]


@pytest.mark.usefixtures("opened")
def test_a_market_can_end_without_a_model():
    assert invoke("quote", "m", "--csv", "arrivals.csv").exit_code == 0
    assert "offers without an answer" in refused("close", "m", "--without-model")
    assert "--without-model and --out exclude each other" in refused(
        "close", "m", "--without-model", "--out", "x"
    )
    for _ in range(2):
        done = invoke("close", "m", "--without-model", "--lapse")
        assert done.exit_code == 0, done.output
        assert "No model was trained" in said(done.stdout)
    assert "closed without a model, for good" in refused("close", "m")
    assert "was closed" in refused("quote", "m", "--id", "late", "--sensitivity", "3")


def test_a_model_that_was_released_is_not_taken_back(opened):
    sell_everything()
    assert invoke("close", "m").exit_code == 0
    assert "its model was released" in refused("close", "m", "--without-model")
    assert "keeps its model" in refused("close", "m", "--regularization", "-5")


def test_a_regularization_that_leaves_no_room_can_be_replaced(here):
    assert invoke("open", "m", "market.toml", "--set", "learner.regularization=1e-6").exit_code == 0
    sell_everything()
    assert "close with another --regularization" in refused("close", "m")
    assert invoke("close", "m", "--regularization", "2.0").exit_code == 0
    model = json.loads((here / "m/report/model.json").read_text())
    assert model["regularization"] == 2.0


def test_a_market_moves_together_with_its_problem(here, monkeypatch):
    (here / "all").mkdir()
    for name in ("market.toml", "rows.csv", "test.csv", "arrivals.csv"):
        (here / name).rename(here / "all" / name)
    assert invoke("open", "all/m", "all/market.toml").exit_code == 0
    (here / "all").rename(here / "moved")
    monkeypatch.chdir(here / "moved")
    sell_everything()
    assert invoke("close", "m").exit_code == 0


def test_a_market_made_without_a_problem_says_so(here):
    from convexmarket.online import OnlinePolicy
    from convexmarket.priors import Uniform

    OnlineMarket.create("m", OnlinePolicy(Uniform(1, 5), 5, 1.0, 10.0, 0.1)).disconnect()
    assert "made without a problem file" in refused("close", "m")


# --------------------------------------------------------------------------------------- rest


def test_the_shipped_example_runs_from_open_to_close(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("open", "m", str(CLINIC / "market.toml")).exit_code == 0
    arrivals = pd.read_csv(CLINIC / "arrivals.csv").head(40)
    arrivals.to_csv("arrivals.csv", index=False)
    sell_everything()
    done = invoke("close", "m", "--out", "report")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "report" / "index.html").is_file()


def test_run_simulates_a_market(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = ["--set", "simulation.arrivals=30", "--set", "buyer.gamma=0.001"]
    problem = str(CLINIC.parent / "online-wdbc.toml")
    done = builders.invoke("run", problem, *changes)
    assert done.exit_code == 0, done.output
    assert "In this simulated market 24 of 341 expected sellers" in said(done.stdout)
    assert (tmp_path / "out/online-wdbc/model.json").is_file()


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ([], "convexmarket online answer market --accept --csv offers.csv"),
        (["open"], "convexmarket online open market problems/online-clinic/market.toml"),
        (["quote"], "--csv arrivals.csv --out offers.csv"),
        (["answer"], "convexmarket online answer market --decline --csv declined.csv"),
        (["status"], "convexmarket online status market"),
        (["close"], "convexmarket online close market --lapse"),
    ],
)
def test_help_teaches_by_example(command, example):
    assert example in said(invoke(*command, "--help").stdout)


def test_help_says_what_exit_code_3_is():
    assert "the exit code is 3" in said(invoke("quote", "--help").stdout)


def test_a_backup_goes_on_as_the_market_did(opened):
    assert invoke("quote", "m", "--csv", "arrivals.csv").exit_code == 0
    done = invoke("status", "m", "--backup", "restored/market.sqlite")
    assert done.exit_code == 0
    assert "Wrote restored/market.sqlite" in said(done.stdout)
    assert invoke("answer", "m", "--accept", "--id", "a").exit_code == 0
    assert invoke("status", "m", "--backup", "restored/market.sqlite", "--force").exit_code == 0
    assert quoted("restored").equals(quoted("m"))
    assert invoke("status", "restored").exit_code == 0
    refused = invoke("status", "m", "--backup", "arrivals.csv")
    assert refused.exit_code == 2
    assert "arrivals.csv exists; pass --force" in said(refused.stderr)
    assert Path("arrivals.csv").read_text() == ARRIVALS
