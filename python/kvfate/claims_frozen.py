"""The inputs of the tables that claims are judged by, and `kvfate claims freeze`, which fixes them before a run.

A freeze is a JSON file with the program's version, the seed and the SHA-256 of the register, of each text, model and other input.  claims.sh runs this
module: `begin` checks the inputs against the freeze and stores them in the work folder, and `stamp` writes them into the metadata of each table.
`kvfate claims` compares the stamps of the tables and its register with the freeze.

usage: python -m kvfate.claims_frozen begin WORK OUT TEXTS | stamp WORK OUT      (the other inputs are the environment of claims.sh)
"""
import hashlib
import json
import os
import sys

from . import files, program
from .commands import Usage
from .errors import Error, shown
from .models_get import model_file, sha256

FORM, NAME = "kvfate freeze 1", "frozen.json"  # what the file says it is; its name in a folder of tables
OTHERS = ("GATES", "WRITE_GATES", "NULL_GATES", "NULL_WRITE_GATES", "NULL_MODEL", "ABLATE")  # variables of claims.sh that name other inputs
STAMPS = ("family", "frozen", "input_program", "input_seed", "input_texts", "input_model", "input_others")
NOT_FROZEN = "not frozen"


def _sum(path):
    """Returns the SHA-256 of a file, or of the names and files of a model folder."""
    if not os.path.isdir(path):
        return sha256(path)
    return _whole({name: sha256(os.path.join(path, name)) for name in sorted(os.listdir(path)) if os.path.isfile(os.path.join(path, name))})


def _whole(sums):
    """Returns one SHA-256 of {name: SHA-256}."""
    return hashlib.sha256("".join("%s  %s\n" % (s, name) for name, s in sorted(sums.items())).encode()).hexdigest()


def texts_of(folder):
    """Returns {name: SHA-256} of the texts SOURCE-N.txt of a folder and of its list of parts."""
    names = [n for n in os.listdir(folder) if n == "texts.tsv" or n.endswith(".txt") and "-" in n]
    if not names:
        raise Error("%s has no texts of the form SOURCE-N.txt" % folder)
    return {n: sha256(os.path.join(folder, n)) for n in sorted(names)}


def _version():
    return program.run("--version").decode().split("\n")[0]


def _described(word):
    """Returns what the program says of a model."""
    return json.loads(program.run("models", "--json", model_file(word)))


def _about(word):
    """Returns the description of a model for a freeze."""
    path, told = model_file(word), _described(word)
    return {"file": os.path.basename(path.rstrip("/")), "name": told["name"], "family": told["arch"], "sha256": _sum(path)}


# ---- kvfate claims freeze

def freeze(request, register):
    """Writes the freeze of a request.  register: the path of the register."""
    if not request.output or not request.output.endswith(".json"):
        raise Usage("freeze needs -o NAME.json")
    if not request.texts or not request.model:
        raise Usage("freeze needs --texts FOLDER and --model FILE for each model")
    if os.path.exists(request.output):
        raise Error("%s exists; a freeze is not replaced: give another name" % request.output)
    texts = texts_of(request.texts)
    made = {"form": FORM, "program": _version(), "seed": request.seed, "register": {"file": os.path.basename(register), "sha256": sha256(register)},
            "texts": {"sha256": _whole(texts), "files": texts}, "models": [_about(m) for m in request.model],
            "others": [{"file": os.path.basename(g), "sha256": _sum(model_file(g))} for g in request.input]}
    files.write(request.output, json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    print("%s: %d texts, %d models, register %s; SHA-256 %s" % (request.output, len(texts), len(made["models"]), made["register"]["file"], sha256(request.output)))


def read(path):
    """Returns the freeze in a file."""
    try:
        with open(path, encoding="utf-8") as f:
            frozen = json.load(f)
        if frozen["form"] != FORM:
            raise ValueError("another form")
        for key in ("program", "seed"):
            frozen[key]
        return {**frozen, "sums": {"register": frozen["register"]["sha256"], "texts": frozen["texts"]["sha256"],
                                   "models": {m["sha256"] for m in frozen["models"]}, "others": {m["sha256"] for m in frozen["others"]}}}
    except (ValueError, KeyError, TypeError) as e:
        raise Error("%s is no freeze of `kvfate claims freeze` (%s)" % (path, e)) from None


# ---- comparison

def _differences(frozen, seen):
    """Returns what differs between a freeze and inputs with the keys of STAMPS, as texts."""
    sums = frozen["sums"]
    others = set(filter(None, seen["input_others"].split(" ")))
    wrong = ["the program is %s, not %s" % (seen["input_program"], frozen["program"])] if seen["input_program"] != frozen["program"] else []
    wrong += ["the seed is %s, not %s" % (seen["input_seed"], frozen["seed"])] if seen["input_seed"] != str(frozen["seed"]) else []
    wrong += ["the texts"] if seen["input_texts"] != sums["texts"] else []
    wrong += ["the model"] if seen["input_model"] not in sums["models"] else []
    return wrong + (["another input, such as gates"] if not others <= sums["others"] | sums["models"] else [])


def judged(folder, tables, register):
    """Returns (state, sentence) of the tables of a folder: the state is the SHA-256 of the freeze, or "not frozen"; the sentence says what differs.

    tables: those that were judged; register: the path of the register."""
    path = os.path.join(folder, NAME)
    stamped = {t.meta.get("frozen", NOT_FROZEN) for t in tables}
    if not os.path.exists(path):
        lost = stamped - {NOT_FROZEN}
        return NOT_FROZEN, "%s: the tables carry a freeze, and %s is not there" % (folder, NAME) if lost else ""
    state, frozen = sha256(path), read(path)
    wrong = ["the register"] if sha256(register) != frozen["sums"]["register"] else []
    if stamped - {state}:
        wrong.append("tables were made without this freeze")
    for t in tables:
        wrong += [] if t.meta.get("frozen") != state else _differences(frozen, {key: t.meta.get(key, "") for key in STAMPS})
    return state, "%s: inputs differ from the frozen ones: %s" % (folder, "; ".join(dict.fromkeys(wrong))) if wrong else ""


# ---- what claims.sh calls

def _inputs(texts):
    """Returns the inputs of claims.sh with the keys of STAMPS, and the sums of the texts."""
    env, sums = os.environ, texts_of(texts)
    about = _about(env.get("MODEL", ""))
    others = {_sum(model_file(env[name])) for name in OTHERS if env.get(name)}
    return {"family": about["family"], "frozen": NOT_FROZEN, "input_program": _version(), "input_seed": env.get("SEED") or "0", "input_texts": _whole(sums),
            "input_model": about["sha256"], "input_others": " ".join(sorted(others))}, sums


def begin(work, out, texts):
    """Checks the inputs against the freeze and against those of earlier calls in the work folder, and stores them there.

    Prints for claims.sh: layers, query heads of a layer, whether there are retention gates and write gates, and the name of shipped gates for dbtrimkv."""
    inputs, sums = _inputs(texts)
    path = os.environ.get("FREEZE")
    if path:
        frozen = read(path)
        wrong = _differences(frozen, inputs)
        if wrong:
            changed = sorted(n for n in {**sums, **frozen["texts"]["files"]} if sums.get(n) != frozen["texts"]["files"].get(n))
            raise Error("inputs differ from those of %s: %s%s" % (path, "; ".join(wrong), " (%s)" % ", ".join(changed[:5]) if changed else ""))
        inputs["frozen"] = sha256(path)
        with open(path, "rb") as f:
            files.write(os.path.join(out, NAME), f.read())
    kept = {**{key: x for key, x in inputs.items() if key not in ("frozen", "input_others")}, **{k: os.environ[k] for k in ("LENGTH", "BUDGET")}}
    place = os.path.join(work, "inputs.json")
    if os.path.exists(place):
        with open(place, encoding="utf-8") as f:
            before = json.load(f)["kept"]
        wrong = sorted(key for key in kept if kept[key] != before.get(key))
        if wrong:
            raise Error("%s holds results of other inputs (%s differs); give another folder" % (work, ", ".join(wrong)))
    files.write(place, json.dumps({"kept": kept, "inputs": inputs}) + "\n")
    told = _described(os.environ.get("MODEL", ""))
    shipped = {g["method"]: g["name"] for g in told["gates"]}
    print(told["layers"], told["query_heads"], *("yes" if os.environ.get(name) or method in shipped else "no" for name, method in (("GATES", "dbtrimkv"), ("WRITE_GATES", "wgkv"))),
          shipped.get("dbtrimkv", "-"))


def stamp(work, out):
    """Writes the inputs into the metadata of all tables of a folder.  A stamp that is there is replaced."""
    with open(os.path.join(work, "inputs.json"), encoding="utf-8") as f:
        inputs = json.load(f)["inputs"]
    for name in sorted(os.listdir(out)):
        path = os.path.join(out, name)
        if not name.endswith(".tsv") or name.startswith("claims") or os.path.islink(path):
            continue
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
        head = [x for x in lines if x.startswith("#") and x[2:].partition(":")[0] not in (*STAMPS, "checksum")]
        body = [x for x in lines if not x.startswith("#")]
        if not body:
            continue
        head = head or ["# table: %s" % name.partition(".")[0]]
        text = "\n".join([*head, *("# %s: %s" % (key, inputs[key]) for key in STAMPS if inputs[key] != ""), *body, ""])
        if text.encode() != "\n".join([*lines, ""]).encode():
            files.write(path, text)


def main():
    try:
        {"begin": begin, "stamp": stamp}[sys.argv[1]](*sys.argv[2:])
    except (Error, OSError) as e:
        sys.exit("claims.sh: %s" % shown(str(e)))


if __name__ == "__main__":
    main()
