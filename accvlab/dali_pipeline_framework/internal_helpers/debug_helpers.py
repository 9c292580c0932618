# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..operators.published.helpers import print_tensor_op, print_tensor_size_op

__all__ = ["print_tensor_op", "print_tensor_size_op"]
