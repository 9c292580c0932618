from .data_loader import DataLoader as DataLoader
from .report import LoaderReport as LoaderReport
from .state_files import load_state as load_state
from .state_files import save_state as save_state
