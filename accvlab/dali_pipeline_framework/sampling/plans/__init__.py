# SPDX-License-Identifier: Apache-2.0
"""The order of an epoch as arithmetic: which units there are, in which order, and in which slots they play.

```text
 tracks.py        a unit and what it plays: one sample, the frames of a sequence, the frames of a clip
 orders.py        position in the epoch ─> unit: in order, shuffled, by weight, mixed
 flat_plan.py     units of equal length ─> batches: side by side
 stream_plan.py   units of any length ─> slots: one after the other
 range_plan.py    the published order of shards: each shard has a range of the order
```
"""
