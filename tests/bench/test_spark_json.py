"""The benchmark of JSON values: they have their size, and it runs."""

import json
import random
from types import ModuleType

import pytest

from ottla.spark.columns.value_schema import parse_value_schema
from tests.bench.spark_json.run import CASES, value


def test_values_have_their_size_and_the_fields_of_the_schema() -> None:
    for case in CASES:
        made = value(case, 1, random.Random(1))
        assert case.size * 0.8 < len(made) < case.size * 1.1
        assert json.loads(made).keys() == {*parse_value_schema(case.schema).names} - {"sizes"}


@pytest.mark.deep
def test_it_gives_its_figures(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["spark-json", "1000", "--rounds", "2", "--bytes", "100000"]) == 0
    assert "1000 B" in capsys.readouterr().out
