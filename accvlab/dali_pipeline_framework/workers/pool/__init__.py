# SPDX-License-Identifier: Apache-2.0
"""The pool: its window (`pool`), handling of failed batches (`failures`), and of workers (`supervisor`)."""
