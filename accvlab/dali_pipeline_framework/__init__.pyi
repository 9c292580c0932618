from . import datasets as datasets
from . import draws as draws
from . import faults as faults
from . import inputs as inputs
from . import internal_helpers as internal_helpers
from . import limits as limits
from . import operators_impl as operators_impl
from . import pipeline as pipeline
from . import processing_steps as processing_steps
from . import recipes as recipes
from . import sample_data as sample_data
from . import testing as testing
from . import viewing as viewing
from .draws import *
from .faults import *
from .inputs import *
from .pipeline import *
from .processing_steps import *
from .sample_data import *

__version__: str
