# SPDX-License-Identifier: Apache-2.0
"""The operators of the published API, under their old names, for steps of one's own.

numba_operators            nodes of the graph in, nodes out; made of DALI's operators, Numba is not used
python_operator_functions  arrays in, arrays out; for ``fn.python_function``
"""

from typing import TYPE_CHECKING

from accvlab.dali_pipeline_framework.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from accvlab.dali_pipeline_framework.operators_impl import numba_operators, python_operator_functions

__all__ = ["numba_operators", "python_operator_functions"]

__getattr__, __dir__ = lazy_exports(__name__, {name: name for name in __all__})
