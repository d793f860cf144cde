"""Test the commands of an online market, from ``open`` to the released model."""

import json
import math
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.cli.online import EXAMPLES
from convexmarket.online.online_market import OnlineMarket
from convexmarket.online.quote_lists import quote_list
from convexmarket.report import figures, format_number
from convexmarket.report.table_formats import format_cell
from convexmarket.studies.files import OnlineFile, online_file
from tests import PROBLEMS
from tests.cli import builders
from tests.cli.builders import draw_nothing
from tests.cli.builders import plain as said
from tests.online.builders import TRAINED_MARKET

CLINIC = PROBLEMS / "online-clinic"
PROBLEM = TRAINED_MARKET.replace("A small", "A <small>").replace(
    "[learner]", 'public = { test = "test.csv" }\n[learner]'
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
FILES = {"market.toml": PROBLEM, "rows.csv": ROWS, "test.csv": TEST, "arrivals.csv": ARRIVALS}
LIST = ["quote", "m", "--csv", "arrivals.csv"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Change to a folder with a problem, its rows and a list of arrivals."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def market_folder(tmp_path_factory):
    """Open one market for all tests, in a folder with its problem and rows."""
    folder = tmp_path_factory.mktemp("opened")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done("open", "m", "market.toml")
    return folder / "m"


@pytest.fixture
def opened(here, market_folder):
    shutil.copytree(market_folder, here / "m")
    return here


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    monkeypatch.setattr(figures, "saved", draw_nothing)


def invoke(*arguments):
    return builders.invoke("online", *arguments)


def done(*arguments):
    """Run a command successfully, and return its standard output in one line."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return said(result.stdout)


def quoted(folder="m"):
    with OnlineMarket(folder) as market:
        return market.offers()


def refused(*arguments):
    """Check that a command fails without changing the market, and return its error."""
    before = quoted() if Path("m/market.sqlite").exists() else None
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert Path("m/market.sqlite").exists() == (before is not None)
    if before is not None:
        pd.testing.assert_frame_equal(quoted(), before)
    return said(result.stderr).removeprefix("error: ")


def sell_everything():
    """Quote offers to all sellers in the list, and accept every offer."""
    done(*LIST, "--out", "offers.csv")
    done("answer", "m", "--accept", "--csv", "offers.csv")


def test_the_commands_in_the_help_text_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CLINIC, tmp_path / "problems" / "online-clinic")
    assert "convexmarket online answer market --accept --csv offers.csv" in done("--help")
    lines = [line.strip() for line in EXAMPLES.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("convexmarket ")]
    assert [command[2] for command in commands] == ["open", "quote", "answer", "status", "close"]
    for command in commands:
        result = builders.invoke(*command[1:])
        assert result.exit_code == 0, result.output
    assert (tmp_path / "market/report/model.json").is_file()


# ---------------------------------------------------------------------------------------- open


@pytest.mark.usefixtures("here")
def test_open_refuses_invalid_settings():
    for setting, words in [
        ('buyer.rule="algorithm-3"', "violates A's Assumption IV.3"),
        ('data.public={test="none.csv"}', "none.csv: No such file or directory"),
        ('data.classes=["no", "maybe"]', "line 2: the cell in column 'label' is neither"),
        ('data.label="result"', "no column is called 'result'"),
        ("data.features={three=[0, 1]}", "no column is called 'three'"),
    ]:
        assert words in refused("open", "m", "market.toml", "--set", setting)
    other = PROBLEMS / "quickstart.toml"
    assert 'kind must be "online"' in refused("open", "m", other)


def test_private_rows_are_read_only_when_the_market_closes(here):
    (here / "rows.csv").unlink()
    assert "rows.csv does not exist yet" in done("open", "m", "market.toml")
    sell_everything()
    for rows, words in [
        (None, "rows.csv: No such file"),
        (ROWS + "a,0.1,0.1,no\n", "rows.csv: line 8: 'a' is the id of an earlier seller"),
        (ROWS + ",0.1,0.1,no\n", "rows.csv: line 8: "),
        (ROWS + "g,0.1,nan,no\n", "line 8: the cell in column 'two' is"),
        ("id,one,label\n", "no column is called 'two'"),
        ("", "the file is empty"),
    ]:
        if rows is not None:
            (here / "rows.csv").write_text(rows)
        assert words in refused("close", "m")
    (here / "rows.csv").write_text(ROWS)
    done("close", "m")


# ------------------------------------------------------------------------------- quotes and lists


@pytest.mark.usefixtures("opened")
def test_quote_prints_the_offer_as_text_and_as_json():
    words = done("quote", "m", "--id", "a", "--sensitivity", "1.1")
    offer = json.loads(invoke("quote", "m", "--id", "a", "--sensitivity", "1.1", "--json").stdout)
    with OnlineMarket("m") as market:
        assert (offer["epsilon"], offer["payment"]) == market.policy.quote(1.1)
    assert (offer["id"], offer["number"], offer["status"]) == ("a", 1, "offered")
    assert f"payment {offer['payment']:.6g} for a guarantee of epsilon" in words
    assert f"exp(epsilon) = {format_number(math.exp(offer['epsilon']))}." in words
    assert "nothing is bought" in done("quote", "m", "--id", "d", "--sensitivity", "4.9")
    assert list(quoted()["id"]) == ["a", "d"]


@pytest.mark.usefixtures("opened")
def test_a_refused_quote_prints_one_line_and_changes_nothing():
    done("quote", "m", "--id", "a", "--sensitivity", "1.1")
    for arguments, words in [
        (["--id", "a", "--sensitivity", "1.2"], "each seller is quoted once"),
        (["--id", "z", "--sensitivity", "0.5"], "not in the support [1, 5]"),
        (["--id", "z", "--sensitivity", "nan"], "sensitivity must be a finite number >= 0, got"),
        (["--id", " z", "--sensitivity", "2"], "begins or ends with a blank"),
        (["--id", "z"], "give --id and --sensitivity of a seller, or --csv"),
        (["--id", "z", "--csv", "arrivals.csv"], "--csv and --id exclude each other"),
        (["--json", "--csv", "arrivals.csv"], "--csv and --json exclude each other"),
        (["--id", "z", "--sensitivity", "2", "--out", "o.csv"], "--out requires --csv"),
        (["--csv", "none.csv"], "none.csv: No such file"),
        (["--csv", "arrivals.csv", "--id-column", "who"], "Name one of them with --id-column"),
        (["--csv", "arrivals.csv", "--out", "arrivals.csv"], "is the list of arrivals"),
        (["--csv", "arrivals.csv", "--out", "m"], "--out m is a folder"),
    ]:
        assert words in refused("quote", "m", *arguments)
        assert not Path("o.csv").exists()


@pytest.mark.usefixtures("opened")
def test_an_interrupted_list_is_continued_in_order():
    def interrupt(_stage, number, _total):
        if number == 3:
            raise KeyboardInterrupt

    with OnlineMarket("m") as market, pytest.raises(KeyboardInterrupt):
        quote_list(market, "arrivals.csv", progress=interrupt)
    before = quoted()
    text = done(*LIST, "--out", "offers.csv")
    assert f"quoted 5 quoted before, with the same terms {len(before)}" in text
    written, stored = pd.read_csv("offers.csv"), quoted()
    pd.testing.assert_frame_equal(stored.head(len(before)), before)
    pd.testing.assert_frame_equal(written, stored[written.columns], check_dtype=False)
    assert list(written["id"]) == list("abcde")
    assert written["status"].tolist()[3] == "nothing bought"


def test_an_invalid_list_quotes_no_seller(opened):
    done("quote", "m", "--id", "first", "--sensitivity", "1.1")
    for text, words in [
        (ARRIVALS + "z,abc\n", "arrivals.csv: line 7: the report is not a number"),
        (ARRIVALS + "z,0.5\n", "line 7: the report is outside the support"),
        (ARRIVALS + "a,1.1\n", "line 7: 'a' is the id of an earlier seller"),
        (ARRIVALS + ",1.1\n", "line 7: '' is not an id"),
        (ARRIVALS + "a ,1.1\n", "line 7: 'a ' is the id of an earlier seller"),
        (ARRIVALS + "first,1.3\n", "line 7: 'first' has a different sensitivity in its quote"),
        ("id,sensitivity\n", "the list has a header but no sellers"),
    ]:
        (opened / "arrivals.csv").write_text(text)
        assert words in refused(*LIST)
    (opened / "survey.csv").write_text("patient;asks\nAnn;1,5\nBob;2,5\n")
    named = ["--id-column", "patient", "--sensitivity-column", "asks"]
    done("quote", "m", "--csv", "survey.csv", *named)
    assert quoted()["sensitivity"].tolist() == [1.1, 1.5, 2.5]


def test_sellers_beyond_the_expected_number_are_refused_and_counted(opened):
    (opened / "arrivals.csv").write_text(
        "id,sensitivity\n" + "".join(f"s{k},2\n" for k in range(11))
    )
    for _ in range(2):  # the second run repeats the first run
        result = invoke(*LIST, "--out", "offers.csv", "--force")
        assert result.exit_code == 3, result.output
        assert "3 sellers were turned away" in said(result.stderr)
        assert list(pd.read_csv("offers.csv")["id"]) == [f"s{k}" for k in range(8)]
    assert "the 8 expected sellers" in refused("quote", "m", "--id", "z", "--sensitivity", "2")
    assert "full: only answers are accepted" in done("status", "m")


# ------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.usefixtures("opened")
def test_offers_saved_by_a_german_spreadsheet_can_be_accepted(separator):
    done(*LIST, "--out", "offers.csv")
    offers = pd.read_csv("offers.csv")
    sold = offers[offers.epsilon > 0]
    assert 0 < len(sold) < len(offers)
    for column in offers.select_dtypes("number"):
        offers[column] = [f"{number:.9g}".replace(".", ",") for number in offers[column]]
    text = offers.to_csv(index=False, sep=separator, lineterminator="\r\n")
    Path("offers.csv").write_text(text, encoding="utf-8-sig", newline="")
    for _ in range(2):
        text = done("answer", "m", "--accept", "--csv", "offers.csv")
        assert f"{len(sold)} sellers: accepted" in text
    statuses = quoted().set_index("id")["status"]
    assert set(statuses[sold.id]) == {"accepted"}
    assert set(statuses.drop(sold.id)) == {"nothing bought"}
    assert "has accepted already" in refused("answer", "m", "--decline", "--csv", "offers.csv")
    offers[offers.status == "nothing bought"].to_csv("none.csv", index=False)
    refusal = refused("answer", "m", "--accept", "--csv", "none.csv")
    assert "no seller in the list has an offer" in refusal
    lines = Path("offers.csv").read_text("utf-8-sig").replace(separator, ",").splitlines()
    Path("offers.csv").write_text("".join(f'"{line}"\r\n' for line in lines))
    refusal = refused("answer", "m", "--accept", "--csv", "offers.csv")
    assert "each line of the file is one quoted cell" in refusal


@pytest.mark.usefixtures("opened")
def test_answers_are_recorded_once():
    for seller in ("a", "b"):
        done("quote", "m", "--id", seller, "--sensitivity", "1.1")
    for _ in range(2):
        assert "The seller has accepted" in done("answer", "m", "--accept", "--id", "a")
    assert "The seller has declined" in done("answer", "m", "--decline", "--id", "b")
    assert quoted()["status"].tolist() == ["accepted", "declined"]
    for options, words in [
        (["--decline", "--id", "a"], "the first answer is final"),
        (["--accept", "--id", "z"], "never quoted"),
        (["--accept"], "give --id of a seller, or --csv"),
        (["--id", "a"], "give the answer, --accept or --decline"),
        (["--accept", "--id", "a", "--csv", "x.csv"], "give --id of a seller, or --csv"),
        (["--accept", "--id", "a", "--id-column", "x"], "--id-column requires --csv"),
    ]:
        assert words in refused("answer", "m", *options)


def test_an_invalid_list_of_answers_changes_nothing(opened):
    done(*LIST)
    done("answer", "m", "--decline", "--id", "c")
    for ids, words in [
        ("b z", "line 3: 'z' was not quoted"),
        ("b d", "line 3: 'd' was offered nothing"),
        ("b c", "line 3: 'c' has declined already"),
        ("b b", "line 3: 'b' is the id of an earlier line"),
        ("", "no seller in the list has an offer"),
    ]:
        (opened / "answers.csv").write_text("\n".join(["id", *ids.split()]) + "\n")
        assert words in refused("answer", "m", "--accept", "--csv", "answers.csv")


@pytest.mark.usefixtures("opened")
def test_status_prints_counts_and_sums_and_a_backup_continues_the_market():
    assert "quoted 0 of 8 expected (0.0%)." in done("status", "m")
    sell_everything()
    text, offers = done("status", "m"), quoted()
    sold = offers[offers["status"] == "accepted"]
    assert "the market is open; quoted 5 of 8 expected (62.5%)" in text
    assert f"accepted {len(sold)}" in text
    assert f"privacy sold, eta {format_cell(sold['epsilon'].sum())}" in text
    assert f"payments promised {format_cell(sold['payment'].sum())}" in text
    state = json.loads(invoke("status", "m", "--json").stdout)
    assert state["totals"]["privacy sold, eta"] == pytest.approx(sold["epsilon"].sum(), rel=1e-12)
    for option in ([], ["--force"]):
        text = done("status", "m", "--backup", "restored/market.sqlite", *option)
        assert "Wrote restored/market.sqlite" in text
    assert quoted("restored").equals(offers)
    done("status", "restored")


# --------------------------------------------------------------------------------------- close


def test_close_trains_a_model_within_the_sold_privacy(opened):
    sell_everything()
    text = done("close", "m")
    report = opened / "m" / "report"
    assert "In this market 4 of 8 expected sellers sold" in text
    assert "No tested misreport is profitable: holds." in text
    assert "m/report/index.html" in text
    model, offers = json.loads((report / "model.json").read_text()), quoted()
    sold = offers[offers["status"] == "accepted"].set_index("id")["epsilon"]
    assert model["classes"] == ["no", "yes"]
    assert model["features"] == ["one", "two", "intercept"]
    assert model["guarantees"].keys() == set(sold.index)
    remaining = pd.Series(model["guarantees"])[sold.index]
    paid = model["epsilon_of_the_second_noise"]
    assert (remaining <= sold).all()
    assert 0 < paid < 1e-3 * sold.min()
    assert (remaining / sold).max() == pytest.approx(1.0, rel=1e-9)
    assert model["rows_not_used"] == 2  # d sold nothing, and f received no quote
    for words in ("fresh seed", "second noise"):
        assert any(words in each for each in model["assumptions"])


def test_closing_again_returns_the_same_model_without_training(opened, monkeypatch):
    sell_everything()
    done("close", "m", "--out", "one")

    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(online_file.release, "release_model", never)
    monkeypatch.setattr(OnlineFile, "market_rows", never)
    (opened / "rows.csv").unlink()  # the rows are not needed any more
    for _ in range(2):
        done("close", "m", "--out", "two")
    with OnlineMarket("m") as market:
        for name in ("one", "two"):
            assert (opened / name / "model.json").read_text("utf-8") == market.released
    assert "was closed" in refused("quote", "m", "--id", "z", "--sensitivity", "2")
    done(*LIST)
    (opened / "arrivals.csv").write_text(ARRIVALS + "z,2.0\n")
    assert "1 sellers of arrivals.csv were not" in refused(*LIST)
    assert "the market is closed" in done("status", "m")
    assert "its model was released" in refused("close", "m", "--without-model")
    assert "with a model" in refused("close", "m", "--regularization", "-5")


@pytest.mark.usefixtures("opened")
def test_a_market_stays_open_without_an_acceptance_or_an_answer():
    assert "no seller accepted an offer" in refused("close", "m")
    done(*LIST)
    assert "no seller accepted an offer" in refused("close", "m", "--lapse")
    done("answer", "m", "--accept", "--id", "a")
    assert "offers without an answer: 3 (b, c, e); record" in refused("close", "m")
    assert "and no results.json of a report" in refused("close", "m", "--lapse", "--out", "m")
    with OnlineMarket("m") as market:
        assert not market.is_closed
    done("close", "m", "--lapse")
    assert quoted()["status"].tolist()[:2] == ["accepted", "declined"]


def test_a_seller_without_a_row_is_named_and_can_be_left_out(opened):
    sell_everything()
    (opened / "rows.csv").write_text("\n".join(ROWS.splitlines()[:3]) + "\n")
    assert "2 of 4 sellers who accepted have no row (c, e)" in refused("close", "m")
    for id, words in [
        ("z", "leave_out contains 'z', who accepted no offer"),
        ("c", "1 of 3 sellers who accepted have no row (e)"),
    ]:
        assert words in refused("close", "m", "--leave-out", id)
    assert not (opened / "m" / "report").exists()
    assert "exclude each other" in refused("close", "m", "--without-model", "--leave-out", "c")
    done("close", "m", "--leave-out", "c", "--leave-out", "e")
    model = json.loads((opened / "m/report/model.json").read_text())
    assert model["left_out"] == ["c", "e"]
    sold = quoted().set_index("id")["epsilon"]
    assert model["guarantees"].keys() == {"a", "b"}
    assert all(guarantee <= sold[id] for id, guarantee in model["guarantees"].items())


def test_a_regularization_that_is_too_small_can_be_replaced(here):
    done("open", "m", "market.toml", "--set", "learner.regularization=1e-6")
    sell_everything()
    assert "close with another --regularization" in refused("close", "m")
    done("close", "m", "--regularization", "2.0")
    model = json.loads((here / "m/report/model.json").read_text())
    assert model["regularization"] == 2.0


def test_a_market_without_a_problem_file_is_closed_only_in_python(here):
    policy = cm.OnlinePolicy(cm.Uniform(1, 5), 5, mu=1.0, sigma=10.0, gamma=0.1)
    OnlineMarket.create("m", policy).disconnect()
    assert "made without a problem file" in refused("close", "m")
