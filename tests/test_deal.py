"""``buy`` and ``price`` give the same offers as separate calls for their steps."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, DataError, ParameterError, PriorError
from convexmarket.privacy import Simulation, account

PRIOR = cm.Uniform(0.02, 0.10)
PUBLIC = cm.PublicFeatures({"age": (18, 100), "smoker": ["no", "yes"]}, missing="indicator")
OBJECTIVE = cm.Spread() + 10 * cm.Noise()


def patients(count=120, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "patient": [f"P{row:03d}" for row in range(count)],
            "age": rng.uniform(18, 100, count).round(),
            "smoker": rng.choice(["no", "yes"], count),
            "ask": rng.uniform(0.02, 0.10, count),
            "clinic": rng.choice(["north", "south"], count),
        }
    )
    table.loc[3, "age"] = np.nan
    table["ill"] = np.where(table["age"].fillna(0) + 30 * (table["smoker"] == "yes") > 70, 1, -1)
    return table.sample(frac=1.0, random_state=seed)


def learner():
    return cm.PrivateLogisticRegression(0.1, features=PUBLIC)


def deal(table, **options):
    usual = {"target": "ill", "learner": learner(), "gamma": 0.1, "random_state": Simulation(0)}
    return cm.buy(table, ask="ask", prior=PRIOR, **usual | options)


def test_a_deal_equals_its_separate_steps():
    table = patients().set_index("patient")
    result = deal(table, constraints=[cm.Cap(8)])
    mu, sigma = learner().risk(PUBLIC.n_features_out_)
    market = cm.Market(
        cm.Sellers(table["ask"], PRIOR),
        mu * cm.Spread() + sigma * cm.Noise() + 0.1 * cm.Payments(),
        [cm.Cap(8)],
    )
    allocation = cm.allocate(market)
    paid = cm.payments(market, allocation)
    assert result.offers["epsilon"].to_numpy() == pytest.approx(allocation.epsilon, rel=1e-12)
    assert result.offers["payment"].to_numpy() == pytest.approx(paid, rel=1e-12)
    surplus = paid - table["ask"].to_numpy() * allocation.epsilon
    assert result.offers["surplus"].to_numpy() == pytest.approx(surplus, abs=1e-12)
    model = learner().fit(
        table, table["ill"], epsilon=allocation.epsilon, random_state=Simulation(0)
    )
    assert np.array_equal(result.model.coef_, model.coef_)
    assert result.certificate["gap"] == allocation.gap
    assert result.incentives == "by construction"


def test_a_model_does_not_exceed_the_bought_epsilon_and_charges_its_account():
    table = patients()
    result = deal(table, id="patient")
    assert np.all(result.model.epsilon_ <= result.offers["epsilon"])
    assert np.array_equal(result.account.budget, result.offers["epsilon"])
    assert np.array_equal(result.account.spent, result.model.epsilon_)
    with pytest.raises(BudgetExceededError, match="P"):
        result.account.charge(result.model.guarantee_)


def test_a_deal_charges_open_accounts():
    with account(budget=1.0), pytest.raises(BudgetExceededError):
        deal(patients(), random_state=None)


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars", "pyarrow"])
def test_files_and_tables_of_other_libraries_are_accepted(tmp_path, kind):
    table, source = patients().reset_index(drop=True), tmp_path / f"patients.{kind}"
    if kind in ("csv", "parquet"):
        table.to_csv(source, index=False) if kind == "csv" else table.to_parquet(source)
    else:
        other = pytest.importorskip(kind)
        source = other.from_pandas(table) if kind == "polars" else other.Table.from_pandas(table)
    offers, expected = deal(source).offers, deal(table).offers
    np.testing.assert_allclose(offers.to_numpy(), expected.to_numpy(), 1e-12, 1e-12)


def test_a_learner_without_features_gets_all_other_columns():
    table = patients().drop(columns="smoker").dropna()
    table["age"] /= 200.0
    result = deal(table, learner=cm.PrivateLogisticRegression(0.1), id="patient", group="clinic")
    assert result.model.feature_names_in_.tolist() == ["age"]


def test_a_deal_prints_its_statements_and_table():
    result = deal(patients(), id="patient")
    bought = np.count_nonzero(result.offers["epsilon"])
    assert f"{bought} of 120 sellers sell" in repr(result)
    assert "The certificate proves" in repr(result)
    assert result.model.guarantee_.statement() in result.statements()
    html = result._repr_html_()
    assert "P0" in html
    assert "<table" in html
    assert result.to_frame().equals(result.offers)
    assert result.to_frame() is not result.offers


def test_epsilons_and_payments_are_plotted_in_separate_panels():
    panels = deal(patients()).plot()
    assert [panel.get_title() for panel in panels] == ["Privacy bought (epsilon)", "Payment"]
    assert all(len(panel.lines[0].get_xdata()) == 120 for panel in panels)


def test_a_deal_is_written_into_a_private_folder(tmp_path):
    result = deal(patients(), id="patient")
    names = {path.name for path in result.write(tmp_path / "deal")}
    assert names == {"deal.md", "offers.csv", "certificate.json", "model.json"}
    page = tmp_path / "deal" / "deal.md"
    assert page.read_text().startswith("# What was bought")
    assert result.model.guarantee_.statement() in page.read_text()
    written = pd.read_csv(page.with_name("offers.csv"), index_col="id")
    written = written.rename_axis("patient")
    pd.testing.assert_frame_equal(written, result.offers, check_dtype=False, rtol=1e-12)
    assert json.loads(page.with_name("certificate.json").read_text()) == result.to_dict()
    loaded = cm.load_model(page.with_name("model.json"))
    assert np.array_equal(loaded.predict(patients()), result.model.predict(patients()))
    assert all(page.with_name(name).stat().st_mode & 0o077 == 0 for name in names)
    with pytest.raises(ParameterError, match="exists; pass --force"):
        result.write(tmp_path / "deal")
    prices = cm.price(patients(), ask="ask", prior=PRIOR, objective=OBJECTIVE, gamma=0.1)
    assert len(prices.write(tmp_path / "prices")) == 3
    assert pd.read_csv(tmp_path / "prices" / "offers.csv")["id"].tolist() == list(patients().index)


def test_a_model_that_cannot_be_saved_is_omitted_with_a_note(tmp_path):
    class CustomLearner(cm.PrivateLogisticRegression):
        """User-defined learner that is not registered."""

    deal(patients(), learner=CustomLearner(features=PUBLIC)).write(tmp_path)
    assert not (tmp_path / "model.json").exists()
    assert (
        "model is not written here: model is a CustomLearner" in (tmp_path / "deal.md").read_text()
    )


def test_a_budget_can_be_a_constraint():
    totals = deal(patients(20), gamma=None, constraints=[cm.Budget(2.0)]).totals
    assert totals["expected_payments"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"gamma": None}, ParameterError, "payments have no weight; give gamma, budget"),
        ({"budget": 3.0}, ParameterError, "gamma or budget, not both"),
        ({"objective": [cm.Spread()]}, ParameterError, r"a sum of terms .* got \[Spread\(\)\]"),
        ({"objective": OBJECTIVE + cm.Payments()}, ParameterError, "gamma or an objective"),
        ({"learner": None, "classes": (-1, 1)}, ParameterError, "features is missing"),
        ({"constraints": None}, ParameterError, "constraints must be a list .* got None"),
        ({"id": ["name"]}, ParameterError, r"^id must be the name of a column, got \['name'\]"),
        ({"learner": None, "features": {"age": (1, 9)}}, ParameterError, "must be a PublicFeat"),
        ({"id": 3}, DataError, "no column is called 3"),
        ({"id": "name"}, DataError, r"no column is called 'name'.* one of them as id$"),
        ({"target": None}, DataError, "no column is called None"),
        ({"group": "region"}, DataError, r"no column is called 'region'.* as group$"),
        ({"learner": cm.PrivateLogisticRegression}, ParameterError, "PrivateLogisticRegression"),
        ({"learner": LogisticRegression()}, ParameterError, "guarantees the epsilon"),
        (
            {"learner": cm.PrivateLogisticRegression(), "id": "patient", "group": "clinic"},
            DataError,
            "column 'age' contains words or empty cells; .* features=PublicFeatures",
        ),
    ],
)
def test_incompatible_options_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        deal(patients(), **options)


def test_truth_values_as_reports_are_refused():
    market = {"prior": cm.Uniform(0, 1), "objective": OBJECTIVE, "gamma": 0.1}
    with pytest.raises(DataError, match="row 1: the report is not a number"):
        cm.price(pd.DataFrame({"ask": [True, True]}), **market)


def test_columns_can_be_named_by_numbers():
    table = pd.DataFrame([[0.03, "a"], [0.05, "b"]])
    offers = cm.price(table, ask=0, id=1, prior=PRIOR, objective=OBJECTIVE, gamma=0.1).offers
    assert offers.index.tolist() == ["a", "b"]


def test_a_report_is_refused_as_feature():
    custom = cm.PrivateLogisticRegression(features=cm.PublicFeatures({"ask": (0.0, 0.1)}))
    with pytest.raises(ParameterError, match="'ask' is the sellers' report"):
        deal(patients(), learner=custom)
    custom = cm.PrivateLogisticRegression(features=cm.PublicFeatures({"patient": ["P0"]}))
    with pytest.raises(ParameterError, match="'patient' is the column of ids"):
        deal(patients(), learner=custom, id="Patient")


@pytest.mark.parametrize(("target", "role"), [("ask", "report"), ("clinic", "group")])
def test_a_column_of_the_sale_is_refused_as_label(target, role):
    with pytest.raises(ParameterError, match=f"'{target}' is the column of {role}s"):
        deal(patients(), target=target, group="clinic")


def test_columns_whose_names_differ_only_in_case_are_not_features():
    table = pd.DataFrame({"x": [0.1, 0.2, 0.3] * 20, "Price": 0.05, "ill": [-1, 1] * 30})
    public = {"target": "Ill", "prior": PRIOR, "learner": cm.PrivateLogisticRegression()}
    bought = cm.buy(table, ask="price", budget=1, constraints=[cm.Cap(2)], **public)
    assert bought.model.feature_names_in_.tolist() == ["x"]


def test_the_error_for_an_invalid_cell_states_its_line_and_quotes_it_on_request(tmp_path):
    path = tmp_path / "asks.csv"
    market = {"id": "Nr.", "prior": PRIOR, "objective": OBJECTIVE, "gamma": 0.1}
    for cells, message in (
        (["0,03", "k.A.", "0,05"], "2: the report is not a number"),
        (["0.03", "0.04", "0.5"], r"3: the report is outside the support \[0.02, 0.1\]"),
        (["0.03", "-1", "0.04"], "2: the report is negative"),
    ):
        table = pd.DataFrame({"Nr.": ["P1", "P2", "P3"], "ask": cells})
        table.to_csv(path, index=False, sep=";")
        line = f"line {int(message[0]) + 1}{message[1:]}"
        for source, place in ((table, f"^row {message}"), (path, line)):
            with pytest.raises(DataError, match=place):
                cm.price(source, **market)
            with pytest.raises(DataError, match="the report '"):
                cm.price(source, **market, show_cells=True)
    table = pd.DataFrame({"Nr.": ["P1", "P1"], "ask": ["0,03", "0,04"]})
    for source in (table, table.set_index("Nr.")):
        with pytest.raises(DataError, match=r"row 2: 'P1' is the id .* \(column 'Nr.'\)"):
            cm.price(source, **market | {"id": "Nr." if source is table else None})


def test_a_file_keeps_its_ids_as_text(tmp_path):
    path = tmp_path / "asks.csv"
    path.write_text("Nr.;ask;age\n007;0,03;40\n008;k.A.;41\n")
    market = {"ask": "ask", "id": "Nr.", "prior": PRIOR, "objective": OBJECTIVE, "gamma": 0.1}
    for empty in ("k.A.", ["-", "k.A."]):
        with pytest.raises(DataError, match="line 3: the report is missing"):
            cm.price(path, na_values=empty, **market)
    with pytest.raises(ParameterError, match="na_values must be a list of texts"):
        cm.price(path, na_values=5, **market)
    path.write_text("Nr.;ask;age\n007;0,03;40\n008;0,04;41\n")
    stages = []
    priced = cm.price(path, progress=stages.append, **market)
    assert priced.offers.index.tolist() == ["007", "008"]
    assert stages == ["reading", "allocating", "paying"]


def test_an_ask_outside_the_prior_of_a_group_names_the_seller():
    table = patients().set_index("patient")
    table.loc["P007", "ask"] = 0.5
    with pytest.raises(PriorError, match="P007"):
        cm.price(
            table, ask="ask", group="clinic", prior={"north": PRIOR, "south": PRIOR},
            objective=OBJECTIVE, gamma=0.1,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ask", r"the report is missing \(empty or NaN in column 'ask'\); .*"),
        ("ill", r"the label \(column 'ill'\) is missing"),
        ("clinic", r"the group is missing \(empty or NaN in column 'clinic'\); .*"),
    ],
)
def test_the_error_for_an_empty_cell_states_its_row_and_role(name, message):
    table = patients()
    table[name] = table[name].astype(object)
    table.iloc[[5, 9], table.columns.get_loc(name)] = None
    with pytest.raises(DataError, match=rf"^row 6: {message} \(1 more: 10\)"):
        deal(table, group="clinic")


def test_a_learner_that_exceeds_the_bought_epsilon_is_refused():
    class Greedy(cm.PrivateLogisticRegression):
        def fit(self, X, y, *, epsilon, **options):
            return super().fit(X, y, epsilon=2.0 * np.asarray(epsilon), **options)

    with pytest.raises(BudgetExceededError):
        deal(patients(), learner=Greedy(0.1, features=PUBLIC))


def test_a_file_suffix_other_than_csv_and_parquet_is_refused(tmp_path):
    prices = cm.price(patients(), ask="ask", prior=PRIOR, objective=OBJECTIVE, gamma=0.1)
    with pytest.raises(ParameterError, match=r"neither \.csv nor \.parquet"):
        prices.write(tmp_path / "offers.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_rows_is_refused_with_its_file(tmp_path):
    with pytest.raises(DataError, match=r"^the table has no rows"):
        deal(patients().iloc[:0])
    path = tmp_path / "asks.csv"
    path.write_text("id,ask,ill\n")
    with pytest.raises(DataError, match=r"asks\.csv: the table has no rows"):
        deal(path)
    with pytest.raises(DataError, match=r"asks\.csv: the list has a header but no sellers"):
        cm.price(path, prior=PRIOR, objective=OBJECTIVE, gamma=0.1)


@pytest.mark.parametrize(
    ("column", "words"),
    [("area", r"^id p3: the cell in column 'area'"), ("worth", r"^row 4: the label")],
)
def test_the_error_names_only_the_wrong_cell_of_a_column_with_decimal_commas(
    tmp_path, column, words
):
    cells = pd.DataFrame({"id": [f"p{i}" for i in range(20)], "ask": "0,05", "area": "1,5"})
    cells["worth"] = [f"0,{i + 10}" for i in range(20)]
    cells.loc[3, column] = "k.A."
    cells.to_csv(path := tmp_path / "homes.csv", sep=";", index=False)
    with pytest.raises(DataError, match=rf"{words}.* is not a number") as error:
        cm.buy(
            path, id="id", ask="ask", target="worth", prior=PRIOR, gamma=0.1, objective=OBJECTIVE,
            features=cm.PublicFeatures({"area": (0, 3)}), target_range=(0, 1),
        )  # fmt: skip
    assert "more" not in str(error.value)
    assert "k.A." not in str(error.value)


def houses(count, seed=0):
    """Draw a table of houses whose price is nearly linear in two public features."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"size": rng.uniform(40, 250, count), "age": rng.uniform(0, 100, count)}
    ).assign(ask=rng.uniform(0.02, 0.10, count))
    noise = rng.normal(0, 30_000, count)
    table["price"] = np.clip(1_500 * table["size"] - 900 * table["age"] + noise, 0, 500_000)
    return table


def bought_houses(budget=100.0, count=600, **options):
    public = cm.PublicFeatures({"size": (40, 250), "age": (0, 100)})
    arguments = {"features": public, "target_range": (0, 500_000)} | options
    return cm.buy(
        houses(count), ask="ask", target="price", prior=PRIOR, budget=budget,
        random_state=Simulation(0), test=houses(200, 1), **arguments,
    )  # fmt: skip


def bought_diagnoses(**options):
    return cm.buy(
        patients(), ask="ask", target="ill", prior=PRIOR, features=PUBLIC, budget=50.0,
        random_state=Simulation(0), **options,
    )  # fmt: skip


def test_the_default_learner_follows_the_declared_labels():
    result = bought_houses()
    assert isinstance(result.model, cm.PersonalizedRidge)
    assert result.test_errors["model"] < 0.5 * result.test_errors["constant"]
    assert result.expected_error < 20_000
    assert "a prediction, computed from public numbers" in str(result)
    assert "the best constant prediction" in str(result)
    diagnoses = bought_diagnoses(classes=(-1, 1), test=patients())
    assert isinstance(diagnoses.model, cm.PrivateLogisticRegression)
    assert 0 <= diagnoses.test_errors["model"] <= diagnoses.test_errors["constant"] + 0.1


def test_undeclared_labels_are_inferred_with_a_warning():
    with pytest.warns(cm.PrivacyLeakWarning, match="target_range"):
        result = bought_houses(target_range=None)
    assert isinstance(result.model, cm.PersonalizedRidge)
    assert result.expected_error is None
    with pytest.warns(cm.PrivacyLeakWarning, match="classes"):
        assert isinstance(bought_diagnoses().model, cm.PrivateLogisticRegression)


def test_a_model_worse_than_a_constant_gives_a_warning_before_training():
    poor = cm.PersonalizedRidge(
        1e-3, perturbation="output", target_range=(0, 500_000),
        features=cm.PublicFeatures({"size": (40, 250), "age": (0, 100)}),
    )  # fmt: skip
    options = {"learner": poor, "features": None, "target_range": None}
    with pytest.warns(cm.errors.UselessModelWarning, match="larger budget"):
        result = bought_houses(budget=1.0, **options)
    assert result.expected_error > poor.noise_limit(result.offers["epsilon"])


def test_a_model_shrunk_to_a_constant_gives_a_warning_before_training_and_on_test_rows():
    with pytest.warns(cm.errors.UselessModelWarning) as caught:
        result = bought_houses(budget=1e-9)
    before, after = (str(warning.message) for warning in caught)
    assert "the regularized model predicts no better than a constant: buy more" in before
    assert "on the test rows the error of the model is" in after
    assert result.expected_error < 0.01 * 500_000  # the model is nearly constant


def test_options_of_the_default_learner_are_refused_with_another_learner():
    with pytest.raises(ParameterError, match="features is for the default learner"):
        bought_houses(learner=learner())
    with pytest.raises(ParameterError, match="classes or target_range, not both"):
        bought_houses(classes=(0, 1))


def test_a_learner_without_a_guarantee_is_refused_and_a_declared_guarantee_is_marked():
    class Silent:
        def risk(self, n_features):
            return 1.0, 1.0

        def fit(self, X, y, **options):
            return self

    with pytest.raises(ParameterError, match=r"no guarantee_ after fit.*learners\.Learner"):
        deal(patients(), learner=Silent())

    class Declared(Silent):
        def fit(self, X, y, *, epsilon, **options):
            self.guarantee_ = cm.Guarantee(np.asarray(epsilon), 0.0, "mine", "none", ())
            return self

    assert "declared by the user's learner and was not audited" in str(
        deal(patients(), learner=Declared())
    )


def test_slow_payments_are_announced(monkeypatch):
    stages, people = [], patients(12).set_index("patient")
    options = {"objective": cm.Spread(p=1.5) + cm.Noise(), "prior": PRIOR, "gamma": 0.1}
    monkeypatch.setattr("convexmarket.deal._LONG", 0.0)
    cm.price(people, progress=stages.append, **options)
    assert [stage for stage in stages if stage.startswith("paying, about")]
    stages.clear()
    cm.price(people, progress=stages.append, **options | {"objective": OBJECTIVE})  # closed form
    assert "paying" in stages
