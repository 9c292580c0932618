from .file_limits import most_file_bytes as most_file_bytes
from .file_limits import most_image_pixels as most_image_pixels
from .file_limits import most_unpacked_bytes as most_unpacked_bytes
from .file_limits import set_most_file_bytes as set_most_file_bytes
from .file_limits import set_most_image_pixels as set_most_image_pixels
from .file_limits import set_most_unpacked_bytes as set_most_unpacked_bytes
