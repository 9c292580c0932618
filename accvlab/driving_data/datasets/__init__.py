# SPDX-License-Identifier: Apache-2.0
"""Providers of driving data sets: one format of samples for all of them, but those of LeRobot.

The rooms::

    driving        what they have in common: poses, the index, records of frames, the provider
    infos          info pickles of the mmdetection3d family
    lerobot        data sets of LeRobot, by their own fields
    navsim         logs of NAVSIM, and its scenes
    nuscenes       the tables of nuScenes
    physical_ai    clips of PhysicalAI-AV

Of Argoverse 2, KITTI and the logs of py123d, a module has all.
"""

from accvlab.dali_pipeline_framework.public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
