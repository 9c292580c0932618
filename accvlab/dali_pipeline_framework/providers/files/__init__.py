# SPDX-License-Identifier: Apache-2.0
"""Files as samples: tables of names, how they are found and read, and the provider over them."""
