"""What can go wrong with driving scenes.

DrivingScenesError
|-- SettingsError (ValueError)             generator settings that make no sense
`-- DatasetExistsError (FileExistsError)   the folder is taken
"""

__all__ = ["DatasetExistsError", "DrivingScenesError", "SettingsError"]


class DrivingScenesError(Exception):
    """Base of all errors of this package."""


class SettingsError(DrivingScenesError, ValueError):
    """The generator settings break a rule; the message lists every broken rule."""


class DatasetExistsError(DrivingScenesError, FileExistsError):
    """The target folder holds something, and is never replaced."""
