"""What every kind of result has in common: it becomes JSON, and comes back as it was."""

import json
from dataclasses import fields

import pandas as pd
import pytest

from convexmarket.lab.records import result_from_json, result_to_json


@pytest.fixture
def as_json():
    """Return the JSON of a result; that it comes back exactly is checked on the way."""

    def written(result):
        text = json.dumps(result_to_json(result), allow_nan=False)
        back = result_from_json(type(result), json.loads(text))
        assert json.dumps(result_to_json(back)) == text
        assert back.problem == result.problem
        assert back.problem.source == result.problem.source
        for field in fields(result):
            value = getattr(result, field.name)
            if isinstance(value, pd.DataFrame):
                pd.testing.assert_frame_equal(getattr(back, field.name), value, check_exact=True)
            assert type(getattr(back, field.name)) is type(value)
        return json.loads(text)

    return written
