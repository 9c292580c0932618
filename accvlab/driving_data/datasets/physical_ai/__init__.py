# SPDX-License-Identifier: Apache-2.0
"""PhysicalAI-AV: where the files of clips are, when there are samples; the provider. Times are microseconds."""
