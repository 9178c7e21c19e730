"""The one error of this package."""


class BrokerError(Exception):
    """The embedded Kafka cannot do what was asked. The text is one line: what is wrong and how to mend it."""
