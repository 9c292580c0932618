# SPDX-License-Identifier: Apache-2.0
"""Samples: trees of named fields, their types, and the values in them.

The modules, from the bottom up::

    names           names and paths of fields, and how they are written
    dtypes          DALI types and their NumPy counterparts
    conversion      values of all kinds to arrays of a field's type, labels to numbers, text to bytes; comparison
    formats         the format of a sample as an immutable value; images in fields; messages on differences
    folded_formats  formats in which one element of an array represents all
    printing        samples and batches as text
    graph_mode          protection from DALI's conditionals
    sample_data_group   the class that users see: a format and the values that fill it
"""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
