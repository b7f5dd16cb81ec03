"""The benchmark of JSON values: they have their size, and it runs."""

import json
import random
import warnings

import pytest

from ottla.spark.columns.value_schema import parse_value_schema
from tests.bench.spark_json.run import CASES, value

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python uses deprecated parts of Python at its import
    from tests.bench.__main__ import main


def test_values_have_their_size_and_the_fields_of_the_schema() -> None:
    for case in CASES:
        made = value(case, 1, random.Random(1))
        assert case.size * 0.8 < len(made) < case.size * 1.1
        assert json.loads(made).keys() == {*parse_value_schema(case.schema).names} - {"sizes"}


@pytest.mark.deep
def test_it_gives_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark-json", "1000", "--rounds", "2", "--bytes", "100000"]) == 0
    assert "1000 B" in capsys.readouterr().out
