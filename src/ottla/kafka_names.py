"""Rewrites errors for users who give Kafka's names in a file, on a command line, or as options of Spark."""

import re

_IN_KAFKAS_NAMES = {
    r"as tls=TLS\(ca=…\)": "as {}ssl.ca.location",
    r"as ClientCredentials\(tls=TLS\(ca=…\)\)": "as {}https.ca.location",
    r"TLS\(check_hostname=False\)": "{}ssl.endpoint.identification.algorithm=none",
    r"TLS\(certificate=…(, key=…)?\)": "{0}ssl.certificate.location and {0}ssl.key.location",
    r"\bkey_password\b": "{}ssl.key.password",
    r"as ServerTLS\(ca=…\)": "as ssl.truststore.location",
    # Servers have no setting for the file of a key alone, as Apache Kafka has none.
    r"give the key as ServerTLS\(key=…\) if it is separate": "put both into one file",
    r"the key as key=…": "the key as {}ssl.key.location",
    r"give certificate=… as well": "give {}ssl.certificate.location as well",
    r"\bmax_request_size is\b": "{}max.request.size is",
    r"give tls=ottla\.TLS\(…\), or security\.protocol=": "set {}security.protocol=",
    r"give sasl=ottla\.Plain\(…\), or another mechanism, or security\.protocol=(\w+ or \w+), sasl\.mechanism, "
    r"sasl\.username and sasl\.password": r"set {0}security.protocol=\1, {0}sasl.mechanism, {0}sasl.username and "
    r"{0}sasl.password",
    r"leave out tls=, or set security\.protocol=": "set {}security.protocol=",
    r"leave out sasl=": "use {}security.protocol=PLAINTEXT or SSL",
    r"needs client_id and client_secret": "needs {0}sasl.oauthbearer.client.id and {0}sasl.oauthbearer.client.secret",
}


def in_kafkas_names(message: str, prefix: str = "") -> str:
    """Replace the arguments ``tls=`` and ``sasl=`` that a message recommends with Kafka's names.

    Args:
        prefix: of the names.
    """
    for python, name in _IN_KAFKAS_NAMES.items():
        message = re.sub(python, name.format(prefix), message)
    return message
