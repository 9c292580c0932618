from .image_limit import most_image_pixels as most_image_pixels
from .image_limit import set_most_image_pixels as set_most_image_pixels
