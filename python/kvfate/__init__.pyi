# What checkers of types and editors are told of the lazy names of __init__.py, each under the same name as there.
from .capture_torch import capture as capture
from .errors import Error as Error, MissingValues as MissingValues, TraceError as TraceError
from .exports import export as export
from .imports import import_trace as import_trace
from .own_score import score as score
from .picture import patches as patches
from .program import ProgramError as ProgramError
from .runs import run as run
from .scores import Answer as Answer, Continuation as Continuation, Scores as Scores
from .tables import Figure as Figure, Report as Report, Table as Table, figure as figure, load_table as load_table, report as report, save_table as save_table, table as table
from .tokens import Tokenizer as Tokenizer
from .trace import Trace as Trace, open_trace as open
from .writer import Writer as Writer
