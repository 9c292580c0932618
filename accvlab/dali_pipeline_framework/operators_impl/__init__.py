# SPDX-License-Identifier: Apache-2.0
"""The operators of the published API, under their old names, for steps of one's own.

numba_operators            nodes of the graph in, nodes out; they call NumPy, Numba is not used
python_operator_functions  arrays in, arrays out; for ``fn.python_function``
"""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
