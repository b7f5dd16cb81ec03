"""Makes Spark show the message of an ottla error alone, without the traceback around it.

Rule: messages name Spark options. Errors of the client name arguments like ``tls=``, which a Spark user cannot set;
here they are translated to Kafka's names.

Theory of operation: Spark runs data sources in Python workers. When one fails, Spark shows the user the worker's
traceback: some twenty lines of Spark's own code, with our message last. A worker leaves the traceback out if its
environment says so, and exits after an error. So we set that variable in the worker just before it fails.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.errors import OttlaError
from ottla.kafka_names import in_kafkas_names
from ottla.spark.logs import in_a_worker


@contextmanager
def one_sentence() -> Iterator[None]:
    """Have Spark show only the message of an `OttlaError`, with the names of options in it.

    Unexpected errors keep their traceback.
    """
    try:
        yield
    except OttlaError as error:
        if error.args == (str(error),):  # the args are the message, not the parts it is formatted from
            error.args = (in_kafkas_names(str(error), "kafka."),)
        if in_a_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
