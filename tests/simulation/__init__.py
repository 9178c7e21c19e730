"""Real lanes above a simulated Kafka, clock, network and guard: one seed, one history."""
