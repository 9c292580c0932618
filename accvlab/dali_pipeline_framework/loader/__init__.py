# SPDX-License-Identifier: Apache-2.0
"""The loader of training loops: binding of inputs, epochs, position, state."""
