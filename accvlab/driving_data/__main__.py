# SPDX-License-Identifier: Apache-2.0
"""``python -m accvlab.driving_data``, see `command_line`."""

import sys

from .command_line import main

if __name__ == "__main__":
    sys.exit(main())
