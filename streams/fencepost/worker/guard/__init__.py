"""The guard and its runners: the part that ends a run for certain, whatever state the worker is in.

worker → guard → (init) → zygote → runners. The guard is a fresh interpreter with one thread, no task code and no
library; what it imports (`house`, `init`, `deadlines`, `orphans`, `control`, `page`, `linux`) uses the standard library
only.

- `client` is what the worker sees (`GuardedRunners`). `pool` hands runs to processes that they share, `process` is the
  worker's side of one process, `leases` that of the leases, `verdict` says what an end means.
- `guard` is the guard's loop, `house` where the runners live: in a PID namespace under `init`, or in process groups.
- `zygote` imports the user's app once and forks processes that become a `runner`: a `sync_runner`, an `async_runner` or
  a `command_stub`.
- `control` is what worker, guard and zygote say to each other, `wire` what worker and runner say to each other, `page`
  the memory they share.
"""
