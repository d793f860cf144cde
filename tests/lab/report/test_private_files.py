"""Who may read what is written: reports of sellers are their owner's, and modes are kept."""

import os
import stat

import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.deal import price_offers
from convexmarket.io import write_together
from convexmarket.lab import write_report
from convexmarket.lab.report.diff import diff_results
from convexmarket.lab.report.model import Report, Section, Table
from convexmarket.lab.report.results import read_results
from tests.cli.builders import invoke
from tests.lab.report.builders import ALL, altered
from tests.online.builders import TRAINED_MARKET

OFFERS = pd.DataFrame({"id": ["Ann", "Bob"], "sensitivity": [0.1, 0.2], "epsilon": [1.0, 0.0]})
SELLERS = Table("sellers", "What each reported.", OFFERS)
CURVE = Table("curve", "Sums.", pd.DataFrame({"gamma": [1.0], "payments": [0.5]}))
AS_USUAL = 0o644


def report(*tables):
    return Report("A title", ("A page.",), (Section("All", tables=tables),), {}, model="{}")


def modes(folder):
    return {
        path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def _a_usual_mask():
    former = os.umask(0o022)
    yield
    os.umask(former)


def test_what_sellers_reported_is_for_the_owner_of_the_report(tmp_path):
    write_report(report(SELLERS, CURVE), tmp_path / "new", ALL)
    found = modes(tmp_path / "new")
    public = {name for name, mode in found.items() if mode == AS_USUAL}
    assert public == {"tables/curve.csv", "tables/curve.tex"}
    assert {mode for name, mode in found.items() if name not in public} == {0o600}
    for name in ("report.md", "index.html"):
        said = (tmp_path / "new" / name).read_text()
        assert "What single sellers reported" in said


def test_a_report_of_sums_is_for_everybody(tmp_path):
    write_report(report(CURVE), tmp_path / "new")
    assert set(modes(tmp_path / "new").values()) == {AS_USUAL}
    assert "single sellers" not in (tmp_path / "new" / "report.md").read_text()


def test_modes_of_a_report_are_kept(tmp_path):
    target = tmp_path / "new"
    write_report(report(SELLERS, CURVE), target, ALL)
    target.chmod(0o750)
    (target / "tables").chmod(0o700)
    (target / "results.json").chmod(0o640)
    (target / "tables" / "curve.csv").chmod(0o600)
    before = modes(target)
    write_report(report(SELLERS, CURVE), target, ALL)
    assert modes(target) == before
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert stat.S_IMODE((target / "tables").stat().st_mode) == 0o700


def test_a_comparison_of_reports_tells_of_sellers(tradeoff_result, tmp_path, monkeypatch):
    sellers = tradeoff_result.tables["sellers"]
    other = altered(tradeoff_result, sellers=sellers.assign(sensitivity=sellers.sensitivity * 2))
    monkeypatch.setattr("convexmarket.lab.report.render.save_figure", lambda *_: "<svg></svg>")
    for name, result in (("a", tradeoff_result), ("b", other)):
        write_report(result, tmp_path / name)
        assert modes(tmp_path / name)["results.json"] == 0o600
        read_results(tmp_path / name)
    write_report(diff_results(tmp_path / "a", tmp_path / "b"), tmp_path / "diff", ALL)
    found = modes(tmp_path / "diff")
    assert found["results.json"] == found["tables/numbers.csv"] == found["index.html"] == 0o600


def test_lists_and_exports_are_for_their_owner(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sellers.csv").write_text("id,sensitivity\nAnn,1.1\nBob,2.5\n")
    (tmp_path / "market.toml").write_text(TRAINED_MARKET)
    (tmp_path / "rows.csv").write_text("id,one,two,label\nAnn,0.1,0.2,yes\n")
    price_offers(tmp_path / "sellers.csv", cm.Uniform(1, 5), mu=1, sigma=100, gamma=0.001).write(
        tmp_path / "offers.csv"
    )
    for arguments in (
        ["ledger", "create", "sold.sqlite"],
        ["ledger", "record", "sold.sqlite", "offers.csv"],
        ["ledger", "export", "sold.sqlite", "--out", "balance.csv"],
        ["ledger", "export", "sold.sqlite", "--out", "balance.json"],
        ["online", "open", "m", "market.toml"],
        ["online", "quote", "m", "--csv", "sellers.csv", "--out", "quotes.csv"],
        ["schema", "--out", "schema.json"],
    ):
        assert invoke(*arguments).exit_code == 0
    found = modes(tmp_path)
    written = ["offers.csv", "offers.certificate.json", "balance.csv", "balance.json", "quotes.csv"]
    assert {found[name] for name in written} == {0o600}
    assert found["schema.json"] == AS_USUAL


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "offers.csv"
    write_together({path: b"id,x\nAnn,1\n"}, private=True)
    path.chmod(mode)
    write_together({path: b"id,x\nAnn,2\n"}, private=True)
    assert modes(tmp_path) == {"offers.csv": mode}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_is_replaced_keeps_its_owner(tmp_path, monkeypatch):
    path = tmp_path / "offers.csv"
    path.write_bytes(b"id,x\nAnn,1\n")
    os.chown(path, 12, 34)
    path.chmod(0o640)
    write_together({path: b"id,x\nAnn,2\n"})
    assert (path.stat().st_uid, path.stat().st_gid) == (12, 34)

    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refused)
    write_together({path: b"id,x\nAnn,3\n"})
    assert path.stat().st_gid == os.getgid()
    assert modes(tmp_path) == {"offers.csv": 0o600}, "the group that read it was another"
