"""`kvfate import`."""
from .errors import Error


def run(request, operands):
    raise Error("this is not built yet")
