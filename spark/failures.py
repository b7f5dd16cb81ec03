"""What a user of Spark reads when something is wrong: our sentence, without the lines of a traceback around it.

Rule: it advises to set an option. A program is advised to give ``tls=`` and the like, which nobody can do here.

Theory of operation: Spark runs data sources in Python workers, and shows the user the traceback that a worker gives
for an error: some twenty lines of Spark's own code, in which the sentence is the last. A worker leaves the traceback
out where its environment says so, and ends after an error. So that is set in the worker, for its last moment.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.errors import OttlaError
from ottla.kafka_names import in_kafkas_names
from ottla.spark.logs import in_a_worker


@contextmanager
def one_sentence() -> Iterator[None]:
    """Of an error of ours, have Spark show the message alone, in the names of options.

    Errors that nobody expected keep their traceback.
    """
    try:
        yield
    except OttlaError as error:
        if error.args == (str(error),):  # and not what the message is made of
            error.args = (in_kafkas_names(str(error), "kafka."),)
        if in_a_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
