# SPDX-License-Identifier: Apache-2.0
"""The order of an epoch as arithmetic.

- A *unit* is ordered as a whole: a sample, a sequence, or a clip. It has one or more samples.
- An *order* says which unit is at which position of an epoch.
- A *slot* is a position in the global batch. A *plan* assigns units to slots.
- A *segment* is a part of a unit that a slot delivers in one piece; a cut unit has several.

```text
 tracks.py        a unit ─> its samples
 orders.py        position in the epoch ─> unit: in order, shuffled; by weight and mixed next to their samplers
 flat_plan.py     units of equal length: side by side in the slots of a batch
 stream_plan.py   units of any length: one after the other in each slot
```
"""
