# SPDX-License-Identifier: Apache-2.0
"""Order as arithmetic: which sample stands at (epoch, batch, slot). Pure NumPy; DALI is not imported."""
