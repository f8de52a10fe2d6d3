"""Shared by the tests of capture: how they start, replacements for libraries, and checks of
exceptions."""
import importlib
import importlib.util
import os
import sys
import types

KVFATE, LIBRARY, ROOT = map(os.path.abspath, sys.argv[1:4])


def begin(what, *libraries):
    """Restarts the test so that the loader finds the trace library (its path is read at program
    start), and with the Python in KVFATE_TORCH_PYTHON if it needs libraries. Skips if a library is
    absent or incompatible."""
    other = os.environ.pop("KVFATE_TORCH_PYTHON", None) if libraries else None
    wanted = {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(LIBRARY)}
    if other or os.environ.get("LD_LIBRARY_PATH") != wanted["LD_LIBRARY_PATH"]:
        os.execve(other or sys.executable, [other or sys.executable, *sys.argv], wanted)
    os.environ["PATH"] = os.path.dirname(KVFATE) + os.pathsep + os.environ["PATH"]
    sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests/data/golden/tools")]
    sys.path.append(os.path.join(ROOT, "tests"))
    try:
        for name in libraries:
            importlib.import_module(name)
    except Exception as e:  # packages for another release of transformers fail in various ways
        print("SKIP: %s: %s" % (what, str(e).splitlines()[0] if str(e) else type(e).__name__))
        sys.exit(77)
    if "torch" in libraries:
        sys.modules["torch"].set_num_threads(2)
    if "transformers" in libraries:
        sys.modules["transformers"].utils.logging.set_verbosity_error()
        sys.modules["transformers"].utils.logging.disable_progress_bar()


def fitting(package):
    """Skips if the installed transformers is not a version that the package requires."""
    import kvfate
    from kvfate.adapters import fits
    try:
        fits(package)
    except kvfate.Error as e:
        print("SKIP:", e)
        sys.exit(77)


def stand_in(name):
    """Returns a module in which every name is a decorator without effect."""
    def nothing(*args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else nothing
    def look(attribute):
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return nothing
    module = types.ModuleType(name)
    module.__getattr__ = look
    module.__spec__ = importlib.util.spec_from_loader(name, None)
    sys.modules[name] = module
    if name.rpartition(".")[0] in sys.modules:
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)


def refused(name, words, call):
    """Checks that the call raises kvfate's exception, with these words in its message."""
    import kvfate
    from check import check
    try:
        call()
    except kvfate.Error as e:
        check(name, all(w in str(e) for w in words), e)
    else:
        check(name, False, "nothing was raised")
