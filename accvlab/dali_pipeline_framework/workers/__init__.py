# SPDX-License-Identifier: Apache-2.0
"""Loading of batches in worker processes: the pool, its processes, and what they do; without DALI.

```text
main process                                         worker (process of this machine, or actor of a Ray cluster)
 plan (epoch, batch) -> places ────── Task ────────> load, check, draw, steps, pack  (`loading`, `packing`)
 window, order, deaths, policy <───── answer ─────── Loaded, Failed or Ended         (`messages`)
 (`pool`)
```
"""
