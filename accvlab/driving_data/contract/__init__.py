# SPDX-License-Identifier: Apache-2.0
"""The contract of samples of driving data, which `check_provider` checks besides that of data providers.

The modules::

    driving_contract       geometry and ranges, and plausibility by
    driving_frames         some consecutive frames as arrays,
    driving_plausibility   the rules of cameras, boxes and motion
"""
