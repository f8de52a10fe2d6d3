"""Reads data files in published formats, and constants from the Python files of a public repository without running them."""
import ast
import contextlib
import json
import os

from .errors import Error, brief, regular

MOST_LINE = 16 << 20  # bytes of a prompt that the program reads


def _read(path, kind="this file"):
    try:
        regular(path)
        with open(path, encoding="utf-8") as f:
            return f.read()
    except OSError as e:
        raise Error("%s: cannot read: %s" % (path, e.strerror)) from None
    except ValueError:
        raise Error("%s: %s is no UTF-8 text" % (path, kind)) from None


def constants(repository, path, names):
    """Returns {name: value} of literals that a Python file of a repository assigns to these names, anywhere in the file.  The first literal counts."""
    path = os.path.join(repository, path)
    if not os.path.exists(path):
        raise Error("%s: not there; --repository must name a checkout of the public repository of this benchmark" % path)
    found = {}
    try:
        tree = ast.parse(_read(path))
    except (SyntaxError, ValueError, RecursionError) as e:
        raise Error("%s: no Python file: %s" % (path, brief(e))) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            with contextlib.suppress(ValueError, TypeError, SyntaxError):
                if name in names and name not in found:
                    found[name] = ast.literal_eval(node.value)
    for name in names:
        if name not in found:
            raise Error("%s: has no literal named %s; this revision of the repository is not supported" % (path, name))
    return found


def text(repository, path):
    """Returns the text of a file of a repository."""
    path = os.path.join(repository, path)
    if not os.path.exists(path):
        raise Error("%s: not there; --repository must name a checkout of the public repository of this benchmark" % path)
    return _read(path)


def parsed(path):
    """Returns the value of a JSON file."""
    try:
        return json.loads(_read(path))
    except (ValueError, RecursionError) as e:
        raise Error("%s: no JSON: %s%s" % (path, brief(e), "; it is a pointer of Git LFS: fetch the file" if _read(path).startswith("version https://git-lfs") else "")) from None


def records(path):
    """Yields (place, object) of a file of JSON lines, or of a JSON file with one array (its name ends in .json)."""
    if path.endswith(".json"):
        rows = parsed(path)
        if not isinstance(rows, list):
            raise Error("%s: expected one array of objects" % path)
        numbered = (("%s: item %d" % (path, i), row) for i, row in enumerate(rows))
    else:
        numbered = _lines(path)
    for place, row in numbered:
        if not isinstance(row, dict):
            raise Error("%s: expected an object" % place)
        if "\\u0000" in json.dumps(row) or any("\ud800" <= c <= "\udfff" for c in json.dumps(row, ensure_ascii=False)):
            raise Error("%s: a text holds a zero or half of a character" % place)
        yield place, row


def _lines(path):
    try:
        regular(path)
        with open(path, encoding="utf-8") as f:
            for i, line in enumerate(f, 1):
                if line.strip():
                    try:
                        yield "%s: line %d" % (path, i), json.loads(line)
                    except (ValueError, RecursionError) as e:
                        raise Error("%s: line %d: no JSON: %s" % (path, i, brief(e))) from None
    except OSError as e:
        raise Error("%s: cannot read: %s" % (path, e.strerror)) from None
    except UnicodeDecodeError:
        raise Error("%s: no UTF-8 text" % path) from None


@contextlib.contextmanager
def shaped(place, what):
    """Turns a missing or wrong field into one sentence."""
    try:
        yield
    except KeyError as e:
        raise Error("%s: the field %s is missing, which %s has" % (place, e, what)) from None
    except (TypeError, AttributeError, IndexError, ValueError) as e:
        raise Error("%s: not the format of %s: %s" % (place, what, brief(e))) from None


def essay(path):
    """Returns the text of a JSON file {"text": ...}, or of a text file."""
    if not path.endswith(".json"):
        return _read(path)
    with shaped(path, "the essays of RULER"):
        return str(parsed(path)["text"])
