"""All that talks to Kafka; no other package imports the client library."""
