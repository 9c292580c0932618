from .data_loader import DataLoader as DataLoader
from .reports.report import LoaderReport as LoaderReport
from .states.state_files import load_state as load_state
from .states.state_files import save_state as save_state
