# SPDX-License-Identifier: Apache-2.0
"""See what you train on: pictures of samples and batches, as they come out of a provider or of a loader.

The modules::

    lenses        where images of fisheye cameras show what is around them
    scene_views   what a sample shows: images, boxes, points, where the cameras are
    pictures      one sample as a picture, several as a recording for the viewer of rerun.io
"""

from accvlab.dali_pipeline_framework.public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
