# SPDX-License-Identifier: Apache-2.0
"""The order of an epoch as arithmetic.

- A *unit* is ordered as a whole: a sample or a sequence.
- An *order* says which unit is at which position of an epoch.
- A *slot* is a position in the global batch. A *plan* assigns units to slots, in tracks: samples side by side are
  one track, sequences have a track per slot.
- A *segment* is a part of a sequence that a slot delivers in one piece; a cut sequence has several.

```text
orders.py        (epoch, position) ─> unit
epoch_plans.py   units ─> tracks ─> batches
tracks.py        a batch; the segments that slots deliver
```
"""
