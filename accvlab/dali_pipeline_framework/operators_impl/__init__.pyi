from . import numba_operators as numba_operators
from . import python_operator_functions as python_operator_functions
