"""`make demo`: a Kafka, three workers, real tasks, a SIGKILL, a freeze and a SIGTERM, and the proof at the end.

What the tasks do is write down that they live, in files the scheduler knows nothing of (`beat`). Those files are
checked by code that trusts nothing of the system (`witness`), beside `fencepost verify`, which looks at the topics
alone.
"""
