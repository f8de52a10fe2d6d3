"""kvfate.run: runs a model under a cache method and opens the trace."""
import contextlib
import json
import os
import subprocess
import tempfile
import threading
import warnings
import weakref

from . import files, program
from .errors import Error
from .own_score import Score, score, serve
from .trace import open_trace


def _prompt(prompt, folder):
    """Returns the options that give a prompt to the program.  folder: for files that they name."""
    if prompt is None:
        return []
    if isinstance(prompt, str):
        return ["--prompt=" + prompt]
    if isinstance(prompt, os.PathLike):
        return ["--file=" + os.fspath(prompt)]
    chat = isinstance(prompt, (list, tuple)) and prompt and isinstance(prompt[0], dict)
    path = os.path.join(folder, "chat.json" if chat else "ids.txt")
    try:
        text = json.dumps(prompt) if chat else " ".join(str(int(x)) for x in prompt)
    except (TypeError, ValueError):
        raise Error("kvfate.run: the prompt is a text, a path of a file, a list of messages {\"role\", \"content\"}, or token ids") from None
    files.write(path, text.encode("utf-8"))
    return ["--chat=" + path if chat else "--ids=" + path]


def _method(method):
    """Returns (text for --method or None, Score or None)."""
    if callable(method) and not isinstance(method, Score):
        method = score(method)
    return (method.method, method) if isinstance(method, Score) else (method, None)


def _finish(process, said):
    """Waits for the program.  Its messages become warnings, or a ProgramError."""
    lines = [x for x in said.decode("utf-8", "replace").splitlines() if x]
    if process.returncode not in (0, program.PARTIAL):
        raise program.ProgramError(lines[-1] if lines else "kvfate ended with status %d" % process.returncode, process.returncode)
    for line in lines:
        warnings.warn(line, stacklevel=4)


def _send(descriptor, data):
    """Writes all of the data to a pipe."""
    data = memoryview(data)
    while data:
        data = data[os.write(descriptor, data):]


def _with_score(words, scorer):
    """Runs the program, and answers its requests for scores from this thread."""
    from_program, its_end = os.pipe()
    its_source, to_program = os.pipe()
    words = [*words, "--score-pipe=%d,%d" % (its_source, its_end)]
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=(its_source, its_end))
    except BaseException:
        os.close(from_program)
        os.close(to_program)
        raise
    finally:
        os.close(its_source)
        os.close(its_end)
    said = []
    listener = threading.Thread(target=lambda: said.append(process.stderr.read()))  # a full pipe would stop the program
    listener.start()
    try:
        with open(from_program, "rb") as source:
            serve(scorer, source, lambda data: _send(to_program, data))
    except BaseException:
        process.kill()
        raise
    finally:
        os.close(to_program)
        process.wait()
        listener.join()
        process.stderr.close()
    return process, b"".join(said)


def run(model: "str | os.PathLike | None", prompt, method=None, budget: "int | str | None" = None, output: "str | os.PathLike | None" = None, **options):
    """Runs a model under a cache method, and returns the open trace (kvfate.Trace).

        trace = kvfate.run("smollm2-135m", "Name three rivers.", method="h2o", budget=64, predict=32)
        trace.survival()

    model: name or file of a model, as `kvfate run -m`; None: the default model.
    prompt: a text (a user's message), a path (pathlib) of a text file, a list of messages {"role", "content"}, or token ids; None if options
    give it (force=, plan=).
    method: name with options as `--method`, such as "snapkv:window=16"; or a function, as kvfate.score describes.  None: the full cache.
    budget: entries per KV head after the prompt, or a fraction of the prompt as "25%".
    output: file of the trace; None: a temporary file that lives as long as the trace object.
    options: those of `kvfate run` with `_` for `-`: predict=64 (tokens to generate), probes="full", shadow="entries", raw=True,
    overwrite=True, threads=2, ...
    ProgramError has the program's sentence.  Exceptions of a function for scores are raised here."""
    text, scorer = _method(method)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kvfate-"))
        path = os.path.join(folder, "run.kvf") if output is None else os.fspath(output)
        words = [program.find(), "run", "-q", *([] if model is None else ["--model=" + os.fspath(model)]), *_prompt(prompt, folder)]
        words += program.words_of({"method": text, "budget": budget, **options}) + ["--output=" + path]
        if scorer:
            process, said = _with_score(words, scorer)
        else:
            process = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            said = process.stderr
        _finish(process, said)
        trace = open_trace(path)
        if output is None:
            weakref.finalize(trace, stack.pop_all().close)
    return trace
