# SPDX-License-Identifier: Apache-2.0
"""DALI's pipelines: what they are fed, what comes out, how long it takes, and what is said when they fail."""
