# SPDX-License-Identifier: Apache-2.0
"""Videos as samples: how they are decoded, indexed and read at any frame, and the providers over them."""
