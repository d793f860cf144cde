"""What every kind of result has in common: it becomes JSON, and comes back as it was."""

import json

import pandas as pd
import pytest

from convexmarket.lab.result import result_from_json, result_to_json


@pytest.fixture
def as_json():
    """Return the tables and the rest as JSON; that they come back exactly is checked on the way."""

    def written(result):
        text = json.dumps(result_to_json(result), allow_nan=False)
        back = result_from_json(type(result.problem), json.loads(text))
        assert json.dumps(result_to_json(back)) == text
        assert back.problem == result.problem
        assert back.problem.source == result.problem.source
        for name, frame in result.tables.items():
            pd.testing.assert_frame_equal(back.tables[name], frame, check_exact=True)
        content = json.loads(text)
        return content | content["tables"]

    return written
