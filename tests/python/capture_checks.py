"""What the tests of capture share: how they begin, what stands in for a library, and how an exception is judged."""
import importlib
import importlib.util
import os
import sys
import types

KVFATE, LIBRARY, ROOT = map(os.path.abspath, sys.argv[1:4])


def begin(what, *libraries):
    """Starts the test again with the library of traces where it is looked for (that happens when a program starts), and with the Python that
    KVFATE_TORCH_PYTHON names when it needs libraries; skips where one is not installed or does not fit."""
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
    except Exception as e:  # what is installed for another release of transformers fails in its own ways
        print("SKIP: %s: %s" % (what, str(e).splitlines()[0] if str(e) else type(e).__name__))
        sys.exit(77)
    if "torch" in libraries:
        sys.modules["torch"].set_num_threads(2)
    if "transformers" in libraries:
        sys.modules["transformers"].utils.logging.set_verbosity_error()
        sys.modules["transformers"].utils.logging.disable_progress_bar()


def fitting(package):
    """Skips where the transformers that is installed is not one that the package asks for."""
    import kvfate
    from kvfate.adapters import fits
    try:
        fits(package)
    except kvfate.Error as e:
        print("SKIP:", e)
        sys.exit(77)


def stand_in(name):
    """A module whose every name is a decorator that does nothing."""
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
    """Whether the call raises kvfate's exception, with these words in its sentence."""
    import kvfate
    from check import check
    try:
        call()
    except kvfate.Error as e:
        check(name, all(w in str(e) for w in words), e)
    else:
        check(name, False, "nothing was raised")
