from .made_drives import made_drive as made_drive
