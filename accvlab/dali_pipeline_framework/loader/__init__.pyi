from .data_loader import DataLoader as DataLoader
from .reports.report import LoaderReport as LoaderReport
from .states.state import load_state as load_state
from .states.state import save_state as save_state
