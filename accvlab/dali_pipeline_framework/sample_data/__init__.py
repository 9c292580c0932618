# SPDX-License-Identifier: Apache-2.0
"""Samples: trees of named fields, their types, and the values in them.

The modules, from the bottom up::

    names       names and paths of fields, and how they are written
    dtypes      DALI types and their NumPy counterparts
    immutable   base class of values that cannot change
    mappings    labels to numbers
    image_content  what is known of an image: encoded or not, layout, range of values
    formats     the format of a sample as an immutable value
    conversion  values of all kinds to arrays of a field's type
    strings     text to bytes and back
    equality    equality of values, for == between samples
    printing    samples as text
    nesting     flat values to nested dicts
    format_problems     messages about formats that do not fit
    graph_mode          protection from DALI's conditionals
    format_queries, value_queries   bases of SampleDataGroup: methods that read format and values
    sample_data_group   the class that users see: a format and the values that fill it
"""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
