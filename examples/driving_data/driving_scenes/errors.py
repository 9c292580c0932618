"""What can go wrong with a data set of driving scenes.

DrivingScenesError
|-- SettingsError (ValueError)             generator settings that make no sense
|-- DatasetExistsError (FileExistsError)   the folder is taken
`-- DatasetError (RuntimeError)            missing, unfinished or damaged data set
"""

__all__ = ["DatasetError", "DatasetExistsError", "DrivingScenesError", "SettingsError"]


class DrivingScenesError(Exception):
    """Base of all errors of this package."""


class SettingsError(DrivingScenesError, ValueError):
    """The generator settings break a rule; the message lists every broken rule."""


class DatasetExistsError(DrivingScenesError, FileExistsError):
    """The target folder holds something else, and the call may not replace it."""


class DatasetError(DrivingScenesError, RuntimeError):
    """The folder holds no complete data set that this version can read."""
