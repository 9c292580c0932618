# SPDX-License-Identifier: Apache-2.0
"""The order of an epoch as arithmetic.

- A *unit* is ordered as a whole: a sample, a sequence, or a clip. It has one or more samples.
- An *order* says which unit is at which position of an epoch.
- A *slot* is a position in the global batch. A *plan* assigns units to slots.
- A *segment* is a part of a unit that a slot delivers in one piece; a cut unit has several.

```text
 tracks.py        a unit ─> its samples; a batch of them
 clips.py         a clip ─> its frames
 epoch_plans.py   position in the epoch ─> unit; units of a batch, side by side in its slots or one after the other
```
"""
