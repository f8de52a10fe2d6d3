"""Finds circular calls: a.c calls a function of b.c, and b.c, directly or through others, one of
a.c.

Two files that cannot be read in order are one file in two pieces. Their common part belongs into a
third file below both. A call is a name followed by a parenthesis, or '&' and the name of a function
or constant struct. Its definition must start in column 0 of another file. Calls through a pointer
in a struct are not found.
"""
import functools
import re

import lint

# Allowed circles, as frozenset of paths: reason.
ALLOWED = {}

DEFINITION = re.compile(r'^((?:[a-z]\w*[ *]+)+)(\w+)\([^;{}]*\)\s*\{', re.M)
DATA = re.compile(r'^((?:[a-z]\w*[ *]+)+)(\w+)(?:\[[^\]]*\])* = ', re.M)
LOCAL = re.compile(r'^ +(?:[a-zA-Z]\w*[ *]+)+(\w+)(?:\[[^\]]*\])*(?: = |[;,])', re.M)
USE = re.compile(r'(?<![\w.>])(?:(\w+)\s*\(|&(\w+))')


@functools.lru_cache(maxsize=None)  # the self-test reads most files repeatedly
def names(text):
    """Returns (names that other files may use, names that this file uses with their lines) of C
    text."""
    text = lint.blank(text)
    found = DEFINITION.findall(text) + DATA.findall(text)
    own, local = {name for _, name in found}, set(LOCAL.findall(text))
    uses = {}
    for m in USE.finditer(text):
        name = m.group(1) or m.group(2)
        if name not in own and (m.group(1) or name not in local):
            uses.setdefault(name, lint.line_of(text, m.start()))
    return {name for words, name in found if 'static' not in words.split()}, uses


def calls(root):
    """Returns {path: {path that it calls: (name, line)}} of the C files of the modules."""
    files = {path: names(lint.read(root, path)) for path in lint.tree(root, '.c', lint.ROOMS)}
    home = {}
    for path, (defined, _) in files.items():
        for name in defined:
            home.setdefault(name, path)
    graph = {}
    for path, (_, uses) in files.items():
        graph[path] = {}
        for name, line in uses.items():
            if name in home and home[name] != path:
                graph[path].setdefault(home[name], (name, line))
    return graph


def reach(graph, start):
    """Returns the files that `start` calls, directly or through others."""
    found, todo = set(), [start]
    while todo:
        for path in graph[todo.pop()]:
            if path not in found:
                found.add(path)
                todo.append(path)
    return found


def circles(graph):
    """Returns sorted sets of files that can each reach all others of the set."""
    reached = {path: reach(graph, path) for path in graph}
    found = {frozenset(b for b in reached[a] if a in reached[b]) for a in graph if a in reached[a]}
    return sorted(map(sorted, found))


def check(root):
    """Reports each circle that is not allowed, at a call within it."""
    graph, reports = calls(root), []
    for circle in circles(graph):
        if frozenset(circle) in ALLOWED:
            continue
        ties = [(a, b) + graph[a][b] for a in circle for b in circle if b in graph[a]]
        told = ', '.join(f'{a} -> {b} ({name})' for a, b, name, _ in ties)
        reports.append(f'{ties[0][0]}:{ties[0][3]}: circle of calls: {told}')
    return reports
