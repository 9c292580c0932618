# SPDX-License-Identifier: Apache-2.0
"""Driving data sets, what models do with them, and pictures of them, on `accvlab.dali_pipeline_framework`.

The rooms::

    datasets   providers of nuScenes, info pickles, py123d logs, KITTI, Argoverse 2 and clips
    steps      steps on lidar, maps, masks from above and futures of objects
    recipes    the data of published models
    viewing    pictures and recordings
    contract   what samples of driving data keep
    testing    small drives in published layouts
"""

from accvlab.dali_pipeline_framework.public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
