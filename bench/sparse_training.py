#!/usr/bin/env python3
"""Run the study of training under a small cache (docs/studies/sparse-training.md) and print its tables.

  usage: bench/sparse_training.py FOLDER [--run MODEL.gguf] [--default MODEL.gguf --text TRAIN.txt HELD.txt]
                                  [--kvfate build/cli/kvfate]

--run makes the missing files of FOLDER: texts and questions of the model, the model that was taught their form, nine
trainings by divergence and six by rewards, and the answers of these models to questions that were not used to choose
rates.  --default distils another model, with low-rank weights, on the first text, and checks it on the second.  A
stopped run continues with the same command.  Tables of the existing files are printed.
"""
import argparse
import json
import os
import subprocess

import numpy as np

import paired

METHODS, BUDGETS, SEEDS, KINDS = ("gkv", "snapkv", "rkv"), (64, 128), (1, 2, 3), ("sparse", "full")
TEXTS = 5  # of the comparison of heads
STARTS = ("Once upon a time", "One day", "There was a little", "Tim and Lily", "A big dog")
REWARD_BUDGETS = ("16", "24", "full")


class Study:
    def __init__(self, folder, program):
        self.folder, self.program = folder, program

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, name, *argv, **more):
        """Make the file NAME unless it exists."""
        if not os.path.exists(self.path(name)):
            subprocess.run([self.program, *map(str, argv)], check=True, **more)

    def stories(self, model, name, n, seed):
        """Return lines of JSONL: stories of the model itself, with its full cache."""
        starts = self.path(name + "-starts.jsonl")
        with open(starts, "w", encoding="utf-8") as f:
            for i in range(n):
                f.write(json.dumps({"id": f"{i:03d}", "text": STARTS[i % 5], "n": 260, "seed": seed + i}) + "\n")
        done = subprocess.run([self.program, "generate", "-m", model, "--jsonl", starts, "--temp", "1", "--ignore-eos", "-t", "1"], check=True, stdout=subprocess.PIPE)
        return [json.dumps({"text": json.loads(line)["text"]}) + "\n" for line in done.stdout.splitlines()]

    def texts(self, model):
        """Make stories.jsonl, and stories2.jsonl with the first 208 of them, which trained, then 120 that no choice was
        based on.
        """
        if not os.path.exists(self.path("stories.jsonl")):
            with open(self.path("stories.jsonl"), "w", encoding="utf-8") as f:
                f.writelines(self.stories(model, "old", 260, 0))
        if not os.path.exists(self.path("stories2.jsonl")):
            with open(self.path("stories.jsonl"), encoding="utf-8") as f:
                old = f.readlines()[:208]
            with open(self.path("stories2.jsonl"), "w", encoding="utf-8") as f:
                f.writelines(old + self.stories(model, "new", 120, 1000))

    def distil(self, model):
        for first, texts, share, documents in (("distil", "stories.jsonl", 0.8, 40), ("new", "stories2.jsonl", 0.62, 80)):
            for method in METHODS:
                for name, more in ((f"{first}-{method}-64", ()), (f"{first}-{method}-control", ("--control",))):
                    self.run(f"{name}.gguf", "tune", "-m", model, "--data", self.path(texts), "--method", method, "-B", 64, "--length", 256, "--prompt", 64,
                             "--accumulate", 4, "--steps", 60, "--lr", "5e-5", "--share", share, "--check-every", 60, "--check-docs", documents, "--budgets", "64,128",
                             "--type", "f32", "-t", 1, *more, "-o", self.path(f"{name}.gguf"))

    def taught(self, model):
        """Train a model that knows the form of an answer: twice the same questions, as separate texts and concatenated."""
        lines = []
        for level in (1, 2, 3):
            self.run(f"f{level}.jsonl", "tasks", "quiz", "--level", level, "-n", 3000, "-s", level, "-o", self.path(f"f{level}.jsonl"))
            with open(self.path(f"f{level}.jsonl"), encoding="utf-8") as f:
                lines += f.readlines()
        self.run("t3.jsonl", "tasks", "quiz", "--level", 3, "-n", 200, "--part", "test", "-s", 3, "-o", self.path("t3.jsonl"))
        if not os.path.exists(self.path("mix1.jsonl")):
            with open(self.path("mix1.jsonl"), "w", encoding="utf-8") as f:
                f.writelines(lines[i] for i in np.random.default_rng(0).permutation(len(lines)))
        common = ("--data", self.path("mix1.jsonl"), "--control", "--method", "snapkv", "--length", 96, "--check-every", 0, "--share", 1, "--type", "f32", "-t", 1)
        self.run("sft1.gguf", "tune", "-m", model, *common, "--accumulate", 24, "--steps", 600, "--lr", "4e-3", "--warmup", 30, "--packing", "documents",
                 "-o", self.path("sft1.gguf"))
        self.run("sft2.gguf", "tune", "-m", self.path("sft1.gguf"), *common, "--accumulate", 16, "--steps", 150, "--lr", "3e-3", "--warmup", 10, "-o", self.path("sft2.gguf"))

    def rewards(self):
        for seed in SEEDS:
            for kind in KINDS:
                self.run(f"rl-{kind}-{seed}.gguf", "tune", "-m", self.path("sft2.gguf"), "--reward", self.path("f3.jsonl"), "--data", self.path("t3.jsonl"), "--method", "gkv",
                         "-B", 24, "--length", 96, "--steps", 70, "--accumulate", 8, "--samples", 8, "--most", 16, "--temperature", 1, "--lr", "2e-4", "--check-every", 70,
                         "--check-docs", 60, "--budgets", "16,24", "--save-every", 5, "--type", "f32", "-s", seed, "-t", 1,
                         *(("--control",) if kind == "full" else ()), "-o", self.path(f"rl-{kind}-{seed}.gguf"))

    def fresh(self):
        """Make a thousand questions that were not used to choose rates and steps."""
        self.run("fresh.jsonl", "tasks", "quiz", "--level", 3, "-n", 1000, "--part", "test", "-s", 11, "-o", self.path("fresh.jsonl"))
        for name in ("sft2", *(f"rl-{kind}-{seed}" for kind in KINDS for seed in SEEDS)):
            self.run(f"fresh-{name}.gguf", "tune", "-m", self.path(name + ".gguf"), "--reward", self.path("f3.jsonl"), "--data", self.path("fresh.jsonl"), "--method", "gkv",
                     "-B", 24, "--length", 96, "--steps", 0, "--accumulate", 1, "--samples", 2, "--most", 16, "--temperature", 1, "--check-docs", 1000,
                     "--budgets", "16,24", "--type", "f32", "-s", 4, "-t", 1, "-o", self.path(f"fresh-{name}.gguf"))

    def default(self, model, train, held):
        """Train low-rank weights of a larger model.  The training part of the text ends within the first text."""
        if not os.path.exists(self.path("both.txt")):
            texts = [open(path, encoding="utf-8").read() for path in (train, held)]
            with open(self.path("both.txt"), "w", encoding="utf-8") as f:
                f.write("".join(texts))
        for name, more in (("gkv", ()), ("gkv-control", ("--control",))):
            self.run(f"smol-{name}.safetensors", "tune", "-m", model, "--data", self.path("both.txt"), "--method", "gkv", "-B", 64, "--length", 256, "--prompt", 64,
                     "--accumulate", 8, "--steps", 30, "--rank", 8, "--lr", "3e-4", "--share", 0.48, "--save-every", 1, "--check-every", 30, "--check-docs", 20,
                     "--budgets", "64,128", "-t", 1, *more, "-o", self.path(f"smol-{name}.safetensors"))

    def record(self, name, kind=".gguf"):
        """Return the steps and the checks of a complete record, or None."""
        if not os.path.exists(self.path(name + kind)):
            return None
        with open(self.path(name + kind + ".log.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        return [x for x in lines if "step" in x], [x for x in lines if "check" in x]


def interval(values):
    """Return the mean and its 95 % interval over the units (documents, questions)."""
    values = np.asarray(values, float)
    return values.mean(), *paired.interval(values, np.random.default_rng(1))


def shown(values, digits):
    return "{:.{d}f} ({:.{d}f} to {:.{d}f})".format(*interval(values), d=digits)


def distil_rows(study, method, got):
    """got: the records of a method and of its control."""
    for budget in BUDGETS if None not in got.values() else ():
        key = f"documents_{budget}"
        after = {n: np.array(r[1][-1][key]) for n, r in got.items()}
        before = np.array(next(iter(got.values()))[1][0][key])
        mine, control = after.values()
        print(f"| {method} | {budget} | {shown(before, 4)} | {shown(mine, 4)} | {shown(control, 4)} | {shown(mine - before, 4)} | {shown(mine - control, 4)} |")


def distil_table(study):
    print("\n| method | budget of the check | KL before | after distillation | after the control | distilled minus before | distilled minus control |\n|---|---|---|---|---|---|---|")
    for first in ("distil", "new"):
        for method in METHODS:
            distil_rows(study, method + (", new stories" if first == "new" else ""), {n: study.record(f"{first}-{method}-{n}") for n in ("64", "control")})
    distil_rows(study, "gkv, default model", {n: study.record(f"smol-{n}", ".safetensors") for n in ("gkv", "gkv-control")})


def table(study, *argv):
    """Return the rows of a table that the program writes, as dictionaries."""
    done = subprocess.run([study.program, *map(str, argv), "-o", "-"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    lines = [line.split("\t") for line in done.stdout.decode().splitlines() if not line.startswith("#")]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def changed(study, base, name, method, budget, prompts):
    """Measure the distance of a trained model's heads from those of its base on equal texts, and how long entries are
    used by both.
    """
    distance, same, kinds, use, effect = [], [], [], [], []
    for i, prompt in enumerate(prompts):
        traces = [study.path(f"change-{base}-{method}-{i}.kvf"), study.path(f"change-{name}-{i}.kvf")]
        common = ("--exact", "--method", method, "--budget", budget, "--probes", "full", "-t", 1)
        study.run(os.path.basename(traces[0]), "run", "-m", study.path(base + ".gguf"), "-p", prompt, "--raw", "-n", 12, *common, "-o", traces[0], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        study.run(os.path.basename(traces[1]), "run", "-m", study.path(name + ".gguf"), "--force", traces[0], *common, "-o", traces[1], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for row in table(study, "compare", *traces, "--match"):
            distance.append(float(row["distance"]))
            same.append(row["head_a"] == row["head_b"])
        a, b = (table(study, "heads", t) for t in traces)
        kinds += [x["kind"] != y["kind"] for x, y in zip(a, b)]
        use.append([np.nanmean([float(r["rmst"]) for r in table(study, "survival", t) if r["criterion"] == "mass.90" and r["horizon"] == "0"]) for t in traces])
        loss = [[float(r["kl"]) for r in table(study, "effect", "-m", study.path(m + ".gguf"), "-p", prompt, "--raw", "--exact", "--recent", 8, "--score-tokens", 12, "-t", 1)] for m in (base, name)]
        effect.append([*np.mean(loss, axis=1), np.corrcoef(loss)[0, 1]])
    use, effect = np.mean(use, 0), np.mean(effect, 0)
    print(f"| {name} | {np.mean(distance):.2f} | {np.mean(same):.3f} | {np.mean(kinds):.3f} | {use[0]:.2f}, {use[1]:.2f} | {effect[0]:.4f}, {effect[1]:.4f} | {effect[2]:.2f} |")


def change_table(study):
    with open(study.path("t3.jsonl"), encoding="utf-8") as f:
        prompts = [json.loads(line)["question"] + "\n" for line in f][:TEXTS]
    print("\n| model | distance of a head to itself in its base | matched to itself | kind changed | steps that an entry is of use, base and trained | KL without a head's memory, base and trained | correlation of these over heads |")
    print("|---|---|---|---|---|---|---|")
    for kind in KINDS:
        for seed in SEEDS:
            if study.record(f"rl-{kind}-{seed}"):
                changed(study, "sft2", f"rl-{kind}-{seed}", "gkv", 24, prompts)


def pass_table(first, got):
    """first: by budget, the fraction of correct answers before; got: records, the last check of each is after."""
    print("\n| cache | pass@1 before | after RL-Sparse | after RL-Full | RL-Sparse minus before | RL-Full minus before | RL-Sparse minus RL-Full | its three seeds |")
    print("|---|---|---|---|---|---|---|---|")
    for budget, before in first.items():
        last = {k: np.array([got[k, s][1][-1][f"questions_{budget}"] for s in SEEDS]) for k in KINDS}
        apart, mean = last["sparse"] - last["full"], {k: x.mean(0) for k, x in last.items()}
        print(f"| {budget} | {shown(before, 3)} | {shown(mean['sparse'], 3)} | {shown(mean['full'], 3)} | {shown(mean['sparse'] - before, 3)} | {shown(mean['full'] - before, 3)} | "
              f"{shown(apart.mean(0), 3)} | {', '.join(f'{x:+.3f}' for x in apart.mean(1))} |")


def fresh_table(study):
    base, got = study.record("fresh-sft2"), {(k, s): study.record(f"fresh-rl-{k}-{s}") for k in KINDS for s in SEEDS}
    if base and None not in got.values():
        pass_table({b: np.array(base[1][-1][f"questions_{b}"]) for b in REWARD_BUDGETS}, got)


def reward_table(study):
    got = {(k, s): study.record(f"rl-{k}-{s}") for k in KINDS for s in SEEDS}
    if None in got.values():
        return
    first = {b: np.mean([got[k, s][1][0][f"questions_{b}"] for k in KINDS for s in SEEDS], axis=0) for b in REWARD_BUDGETS}
    pass_table(first, got)
    print("\n| training | seed | tokens of the passes | reward, first and last 10 steps | entropy, first and last 10 steps | KL from the model, full cache |\n|---|---|---|---|---|---|")
    for (kind, seed), (steps, checks) in got.items():
        ends = [[np.mean([x[name] for x in steps[part]]) for part in (slice(0, 10), slice(-10, None))] for name in ("reward", "entropy")]
        print(f"| RL-{kind.title()} | {seed} | {sum(x['tokens'] for x in steps)} | {ends[0][0]:.3f}, {ends[0][1]:.3f} | {ends[1][0]:.3f}, {ends[1][1]:.3f} | {checks[-1]['kl_full']:.3f} |")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("folder")
    p.add_argument("--run", metavar="MODEL.gguf")
    p.add_argument("--default", metavar="MODEL.gguf")
    p.add_argument("--text", nargs=2, metavar="FILE")
    p.add_argument("--kvfate", default="build/cli/kvfate")
    a = p.parse_args()
    study = Study(a.folder, a.kvfate)
    if a.run:
        os.makedirs(a.folder, exist_ok=True)
        study.texts(a.run)
        study.distil(a.run)
        study.taught(a.run)
        study.rewards()
        study.fresh()
    if a.default:
        os.makedirs(a.folder, exist_ok=True)
        study.default(a.default, *a.text)
    distil_table(study)
    reward_table(study)
    fresh_table(study)
    change_table(study)


if __name__ == "__main__":
    main()
