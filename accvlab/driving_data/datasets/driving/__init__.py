# SPDX-License-Identifier: Apache-2.0
"""Driving data of any origin in one form: poses, the index of a data set, the format of a sample, the provider."""
