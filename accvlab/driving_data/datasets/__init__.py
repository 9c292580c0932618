# SPDX-License-Identifier: Apache-2.0
"""Providers of driving data sets: one format of samples for all of them.

The rooms::

    driving     what they have in common: poses, the index, the format of a sample, the provider
    arrow_logs  logs of py123d: Arrow files of many data sets in one format
    infos       info pickles of the mmdetection3d family
    nuscenes    the tables of nuScenes

Of Argoverse 2, KITTI, LeRobot and PhysicalAI-AV, a module has all.
"""

from accvlab.dali_pipeline_framework.public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
