from .keyed_draws import SamplePlace as SamplePlace
from .random_draws import DrawKey as DrawKey
from .random_draws import DrawRecord as DrawRecord
from .random_draws import FieldKey as FieldKey
from .random_draws import IntegerDraw as IntegerDraw
from .random_draws import NormalDraw as NormalDraw
from .random_draws import RandomDraw as RandomDraw
from .random_draws import UniformDraw as UniformDraw
