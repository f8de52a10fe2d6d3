"""Circles of uses: a.c uses a function or constant of b.c, and b.c, at once or by others, one of a.c.

Two files of a circle cannot be read one after the other: move the code that they share to a third
file below both.  A use is the name of a function or variable that another file defines at column 0:
a call, an address, a member of a table, or a member of a constant struct.  Uses are also found in
inline functions of headers, for each file that calls them, and in lists of plug-ins, as the names
that X(NAME) makes.  A call through a pointer in a struct is not found.
"""
import functools
import re

import lint

# Circles that stay: a file of the circle, and what all of its files match.
ALLOWED = {
    # the registry of commands names the commands, and help and describe read the registry
    'cli/commands.c': re.compile(r'cli/(commands|cmd_\w+)\.c$'),
}

TYPE = r'((?:[a-z]\w*[ *]+)+)'
DEFINITION = re.compile(r'^' + TYPE + r'(\w+)\([^;{}]*\)\s*\{', re.M)
DATA = re.compile(r'^' + TYPE + r'(\w+)(?:\[[^\]]*\])* = ', re.M)
LOCAL = re.compile(r'^ +(?!(?:return|goto|case|else) )(?:[a-zA-Z]\w*[ *]+)+(\w+)(?:\[[^\]]*\])*(?: = |[;,:])', re.M)
MORE = re.compile(r', \**(\w+)(?:\[[^\]]*\])* = ')
PARAMETER = re.compile(r'[(,]\s*(?:[a-zA-Z]\w*[ *]+)+(\w+)(?:\[[^\]]*\])*(?=[,)])')
INLINE = re.compile(r'^static inline ' + TYPE + r'(\w+)\([^;{}]*\)\s*\{(.*?)^\}', re.M | re.S)
WORD = re.compile(r'(?<![\w.>])(?<!struct )(?<!enum )([a-z]\w*)\b(\s*\()?')
INCLUDE = re.compile(r'^#include "([\w/]+\.h)"', re.M)
LIST = re.compile(r'^#define (\w+)\((\w+)\)(.*)$|^#include "([\w/]+\.list)"', re.M)
ITEM = re.compile(r'^(\w+)\((\w+)\)', re.M)


@functools.lru_cache(maxsize=None)  # the self-test asks for most files again and again
def words(text):
    """{name that this C text uses: offset}: names that it calls, and others that it does not declare."""
    local = set(LOCAL.findall(text) + MORE.findall(text) + PARAMETER.findall(text))
    found = {}
    for m in WORD.finditer(text):
        if m.group(2) or m.group(1) not in local:
            found.setdefault(m.group(1), m.start())
    return found


@functools.lru_cache(maxsize=None)
def names(text):
    """(names that other files may use, names that this file uses with where) of C text."""
    text = lint.blank(text)
    found = DEFINITION.findall(text) + DATA.findall(text)
    own = {name for _, name in found}
    uses = {name: lint.line_of(text, at) for name, at in words(text).items() if name not in own}
    return {name for kind, name in found if 'static' not in kind.split()}, uses


@functools.lru_cache(maxsize=None)
def header(text):
    """(headers that C text includes, {inline function: names that it uses})."""
    return (INCLUDE.findall(lint.blank(text, strings=False)),
            {name: set(words(body)) for _, name, body in INLINE.findall(lint.blank(text))})


def inlines(headers, text):
    """{inline function that a file sees: names that it uses}."""
    todo, seen, found = list(header(text)[0]), set(), {}
    while todo:
        path = todo.pop()
        if path in headers and path not in seen:
            seen.add(path)
            more, functions = headers[path]
            todo += more
            found.update(functions)
    return found


def listed(root, text):
    """{name that a list of plug-ins makes: line}: tables alone, not declarations."""
    macro, found = {}, {}
    for m in LIST.finditer(lint.blank(text, strings=False)):
        if m.group(1):
            macro[m.group(1)] = re.findall(r'(\w+)##' + m.group(2), m.group(3)) if 'extern' not in m.group(3) else []
            continue
        for kind, name in ITEM.findall(lint.blank(lint.read(root, m.group(4)))):
            for start in macro.get(kind, []):
                found[start + name] = lint.line_of(text, m.start())
    return found


def uses_of(root, text, headers):
    """{name: line} that a file uses, inline functions and lists looked through."""
    uses, inline = dict(names(text)[1]), inlines(headers, text)
    if '.list"' in text:
        uses.update(listed(root, text))
    todo = [name for name in uses if name in inline]
    while todo:
        name = todo.pop()
        for other in inline[name]:
            if other not in uses:
                uses[other] = uses[name]
                todo += [other] if other in inline else []
    return {name: line for name, line in uses.items() if name not in inline}


def calls(root):
    """{path: {path that it uses: (name, line)}} of the C files of the rooms."""
    texts = {path: lint.read(root, path) for path in lint.tree(root, '.c', lint.ROOMS)}
    headers = {path: header(lint.read(root, path)) for path in lint.tree(root, '.h', lint.ROOMS)}
    home, graph = {}, {}
    for path, text in texts.items():
        for name in names(text)[0]:
            home.setdefault(name, path)
    for path, text in texts.items():
        graph[path] = {}
        for name, line in uses_of(root, text, headers).items():
            if name in home and home[name] != path:
                graph[path].setdefault(home[name], (name, line))
    return graph


def reach(graph, start):
    """Files that start uses, at once or by others."""
    found, todo = set(), [start]
    while todo:
        for path in graph[todo.pop()]:
            if path not in found:
                found.add(path)
                todo.append(path)
    return found


def circles(graph):
    """Sets of files of which each reaches all others, sorted."""
    reached = {path: reach(graph, path) for path in graph}
    found = {frozenset(b for b in reached[a] if a in reached[b]) for a in graph if a in reached[a]}
    return sorted(map(sorted, found))


def allowed(circle):
    return any(path in circle and all(others.match(p) for p in circle) for path, others in ALLOWED.items())


def check(root):
    """A report for each circle that is not allowed, at a use within it."""
    graph, reports = calls(root), []
    for circle in circles(graph):
        if allowed(circle):
            continue
        ties = [(a, b) + graph[a][b] for a in circle for b in circle if b in graph[a]]
        told = ', '.join(f'{a} -> {b} ({name})' for a, b, name, _ in ties)
        reports.append(f'{ties[0][0]}:{ties[0][3]}: circle of uses: {told}')
    return reports
