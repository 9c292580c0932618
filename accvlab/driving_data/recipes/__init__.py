# SPDX-License-Identifier: Apache-2.0
"""Recipes: the data of published models, for training and evaluation, of any `DrivingProvider`.

A recipe has the loader of one model, and its steps; the settings are what the model's configuration says::

    recipe                 what all have: steps, format, loader
    streampetr             StreamPETR: one frame per slot and step, or sliding windows
    sparsedrive            SparseDrive and Sparse4D
    bevformer              BEVFormer: queues of frames
    bevfusion              BEVFusion: lidar sweeps and cameras
    detection_2d           objects in images, as heatmaps
    alpamayo               Alpamayo: several images of each camera, motion of the vehicle
    navsim_models          NAVSIM's TransFuser, and the baseline of states
    scene_sampler          scene by scene, for the evaluation
    image_augmentation     images resized, cropped, mirrored, rotated as in the published code
    mmdet_batches          batches as arguments of ``forward``
"""

from accvlab.dali_pipeline_framework.public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
