"""Secrets among the options: Spark shows options in plans, and the plans must show no secret."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.sdk.kafka_security import OAUTH_NAMES, SASL_NAMES, TLS_NAMES
from ottla.spark.local.session import REDACTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUBLIC = {
    "https.ca.location",
    "https.ca.pem",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.username",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.endpoint.identification.algorithm",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
}
MAY_HOLD_A_KEY = {
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.location",
}
"""Options for a certificate that may hold its key, too; they take a file's path, or the text itself."""
SECRET = {*TLS_NAMES, *SASL_NAMES, *OAUTH_NAMES} - PUBLIC - MAY_HOLD_A_KEY
KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nhush-{name}\n-----END ENCRYPTED PRIVATE KEY-----\n"


@pytest.mark.slow
def test_a_plan_shows_no_secret(spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "kafka.ssl.ca.location": "/etc/ca.pem"}
    options |= {f"kafka.{name}": f"hush-{name}" for name in SECRET}
    options |= {f"kafka.{name}": KEY.format(name=name) for name in MAY_HOLD_A_KEY}
    spark.readStream.format("ottla").options(**options).load().explain(True)
    plan = capsys.readouterr().out
    assert "kafka.ssl.ca.location=/etc/ca.pem" in plan
    assert [name for name in sorted(SECRET | MAY_HOLD_A_KEY) if f"hush-{name}" in plan] == []


def test_the_documentation_has_the_setting_for_clusters() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    assert f"spark.redaction.regex={REDACTED}" in docs


@pytest.mark.slow
def test_what_spark_redacts_by_default_it_still_does(spark: "SparkSession") -> None:
    jvm = spark._jvm
    assert jvm is not None
    settings = getattr(getattr(jvm.org.apache.spark.internal.config, "package$"), "MODULE$")
    default = settings.SECRET_REDACTION_PATTERN().defaultValueString()
    assert str(spark.conf.get("spark.redaction.regex")).startswith(default)
