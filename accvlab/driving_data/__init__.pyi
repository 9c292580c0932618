from . import datasets as datasets
from . import recipes as recipes
from . import steps as steps
from . import testing as testing
from . import viewing as viewing
