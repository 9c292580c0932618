# SPDX-License-Identifier: Apache-2.0
"""The order of an epoch as arithmetic.

- A *unit* is ordered as a whole: a sample or a sequence.
- An *order* says which unit is at which position of an epoch.
- A *slot* is a position in the global batch. A *plan* assigns units to slots.
- A *segment* is a part of a sequence that a slot delivers in one piece; a cut sequence has several.

```text
tracks.py        a unit ─> its samples; batches of them
epoch_plans.py   position in the epoch ─> unit; samples side by side in a batch, sequences one after the other
```
"""
