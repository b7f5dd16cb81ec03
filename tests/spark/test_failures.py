"""The errors that users of Spark read."""

import pytest

from ottla.errors import AuthenticationFailed, UnknownTopicOrPartition
from ottla.spark.failures import one_sentence


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("give the CA that signed it as tls=TLS(ca=…)", "give the CA that signed it as kafka.ssl.ca.location"),
        ("give TLS(certificate=…, key=…)", "give kafka.ssl.certificate.location and kafka.ssl.key.location"),
        ("leave out sasl=, or use another", "use kafka.security.protocol=PLAINTEXT or SSL, or use another"),
    ],
)
def test_advice_for_programs_is_given_in_the_names_of_options(said: str, advice: str) -> None:
    with pytest.raises(AuthenticationFailed) as raised, one_sentence():
        raise AuthenticationFailed(said)
    assert str(raised.value) == advice


def test_an_error_that_puts_its_own_message_together_is_left_as_it_is() -> None:
    with pytest.raises(UnknownTopicOrPartition) as raised, one_sentence():
        raise UnknownTopicOrPartition("key_password")
    assert raised.value.args == ("key_password",)
