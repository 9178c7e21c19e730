"""The guard and its runners: the part that ends a run for certain, whatever state the worker is in.

worker → guard → (init) → zygote → runners. The guard is a fresh interpreter with one thread, no task code and no
library; what it imports (`linux`, `control`, `deadlines`, `orphans`, `init`) uses the standard library only.

- `client` is what the worker sees (`GuardedRunners`); `process` and `leases` are its bookkeeping.
- `control` is what worker, guard and zygote say to each other; `wire` what worker and runner say to each other.
- `zygote` imports the user's app once and forks `runner`s, each a `sync_runner`,
  an `async_runner` or a `command_stub`.
"""
