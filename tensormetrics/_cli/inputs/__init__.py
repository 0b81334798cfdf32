"""Readers of files.

`text` reads lines, `arrays`, `labels` and `gains` convert them to tensors; `naming` rewords errors of the library for
the command line.
"""

from ..option_types import BadInput as BadInput
from .arrays import read_rows as read_rows
from .arrays import read_table as read_table
from .arrays import read_tensor as read_tensor
from .gains import Rows as Rows
from .gains import read_gains as read_gains
from .labels import Column as Column
from .labels import read_columns as read_columns
from .labels import read_labels as read_labels
from .naming import naming as naming
from .text import csv_rows as csv_rows
from .text import existing as existing
from .text import is_number as is_number
from .text import open_text as open_text
