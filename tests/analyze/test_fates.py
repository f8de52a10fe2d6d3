#!/usr/bin/env python3
"""Check kvfate fates against numpy on synthetic columns, on an empty trace, and its errors."""
import os
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, refused, said  # noqa: E402
from maker import ALIVE, SNAPSHOT, Column, make, table

write_kvf = os.path.abspath(sys.argv[2])
L, H, G, T, PROMPT = 3, 2, 4, 41, 17
rng = np.random.default_rng(1)
leaves = np.minimum(np.arange(T) + rng.integers(1, 25, (L, H, T)), T)
evict = np.where(rng.random((L, H, T)) < .4, ALIVE, leaves)
gone = np.repeat(evict < ALIVE, G // H, axis=1)
after = T - np.repeat(np.minimum(evict, T), G // H, axis=1)  # queries after its eviction
mass = np.where(gone, rng.random((L, G, T)) * after * 3 / T, 0).astype(np.float32).astype(float)
role = (np.arange(T) >= PROMPT).astype(float)


def expected(steps, tokens, least, heads):
    """Return rows of step, token, held, needed, from the definitions."""
    rows = []
    for t in steps:
        for i in tokens:
            held = needed = 0
            for l, h in heads:
                left = evict[l, h, i] if evict[l, h, i] != ALIVE else T + 1
                held += i <= t < left
                needed += t >= left and any(mass[l, g, i] >= least * (T - left) for g in range(h * G // H, (h + 1) * G // H))
            rows.append((t, i, held / len(heads), needed / len(heads)) if i <= t else (t, i, None, None))
    return rows


def columns(shadow=True):
    more = [Column("shadow.ghost_mass", "f32", "query", mass, flags=SNAPSHOT)]
    return [Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT), Column("tokens.role", "u8", "run", role)] + more * shadow


with tempfile.TemporaryDirectory(prefix="kvfate-fates-") as folder:
    def trace(name, columns, T=T):
        return make(write_kvf, os.path.join(folder, name), columns, (L, H, G, T), {"run": {"prompt_tokens": PROMPT}}, [f" w{i}" for i in range(T)])

    x = trace("x.kvf", columns())
    every = [(l, h) for l in range(L) for h in range(H)]
    begin = PROMPT - 1 - (T - PROMPT) // 8
    for name, more, steps, tokens, least, heads in (
            ("all", [], range(begin, T), range(T), 1 / T, every),
            ("a part", ["--tokens", "3:20", "--from", "5", "--points", "4", "--needed", "0.05"], [5, 16, 28, 40], range(3, 20), .05, every),
            ("any attention", ["--from", "0", "--points", "3", "--needed", "1e-9"], [0, 20, 40], range(T), 1e-9, every),
            ("one head", ["--head", "L1K1"], range(begin, T), range(T), 1 / T, [(1, 1)])):
        data, meta = table(kvfate, "fates", x, *more)
        rows = expected(steps, tokens, least, heads)
        want = list(zip(*rows))
        check(f"{name}: some entries were needed, not all", 0 < sum(r[3] or 0 for r in rows) < sum(1 - r[2] for r in rows if r[2] is not None))
        queries = [(l, g) for l, h in heads for g in range(h * G // H, (h + 1) * G // H)]
        first = min(int(evict[l, h].min()) for l, h in heads)
        lost = sum(mass[l, g, i] for l, g in queries for i in tokens) / len(queries) / (T - first)
        check(f"{name}: lost attention", abs(float(meta["lost_attention"]) - lost) < 1e-12 and int(meta["first_eviction"]) == first, meta, lost)
        check(f"{name}: the threshold", abs(float(meta["needed"]) - least) < 1e-15, meta["needed"])
        for column, values in zip(("step", "token", "held", "needed"), want):
            same = len(values) == len(data[column]) and all(
                (a is None) == (b is None) and (a is None or abs(a - b) < 1e-12) for a, b in zip(values, data[column]))
            check(f"{name}: {column}", same, [(k, a, b) for k, (a, b) in enumerate(zip(values, data[column])) if a != b][:4])
    check("texts", data["text"][:2] == [" w0", " w1"] and data["role"][0] == "prompt" and data["role"][T - 1] == "answer", data["text"][:3])
    data, _ = table(kvfate, "fates", trace("bare.kvf", columns(False)))
    check("lost attention is not recorded", set(data["needed"]) == {None}, set(data["needed"]))
    check("summary", f"{T} tokens in {L * H} heads" in said("fates", x) and "needed" not in said("fates", os.path.join(folder, "bare.kvf")))
    kept = trace("kept.kvf", [Column("evict_step", "u32", "kv", np.full((L, H, T), ALIVE), flags=SNAPSHOT), columns()[1],
                              Column("shadow.ghost_mass", "f32", "query", mass * 0, flags=SNAPSHOT)])
    check("no eviction", said("fates", kept).endswith("100.0 % of the entries are cached\nno entry was evicted\n"), said("fates", kept))
    check("no step of the first eviction", int(table(kvfate, "fates", kept)[1]["first_eviction"]) == -1)
    check("one head, one token", "1 token in 1 head;" in said("fates", kept, "--head", "L0K0", "--tokens", "0:1"))
    data, _ = table(kvfate, "fates", trace("none.kvf", [Column("evict_step", "u32", "kv", np.zeros((L, H, 0)), flags=SNAPSHOT)], 0))
    check("an empty trace", not data["held"], data)
    two, _ = table(kvfate, "fates", x, os.path.join(folder, "bare.kvf"))
    check("two traces", len(set(two["trace"])) == 2 and len(two["held"]) == 2 * len(expected(range(begin, T), range(T), 1 / T, every)), set(two["trace"]))
    # a cache with a fixed eviction order under several budgets: the attention to evicted entries grows as the budget
    # falls
    order, weight = rng.permutation(PROMPT), rng.random((L, G, T)) ** 4
    weight /= weight.sum(2, keepdims=True)
    shares, losses = [], []
    for budget in (15, 12, 8, 4, 1):
        left = np.full((L, H, T), ALIVE)
        left[:, :, order[budget:]] = PROMPT
        lost = np.where(np.repeat(left, G // H, axis=1) == ALIVE, 0, weight * (T - PROMPT))
        columns_of = [Column("evict_step", "u32", "kv", left, flags=SNAPSHOT), Column("shadow.ghost_mass", "f32", "query", lost, flags=SNAPSHOT),
                      Column("shadow.ghost_hits", "u32", "query", np.zeros((L, G, T)), flags=SNAPSHOT),
                      Column("shadow.first_hit", "u32", "query", np.full((L, G, T), ALIVE), flags=SNAPSHOT)]
        data, meta = table(kvfate, "fates", trace(f"budget{budget}.kvf", columns_of), "--from", str(T - 1))
        shares.append(sum(data["needed"]) / T)
        losses.append(float(meta["lost_attention"]))
    check("a smaller budget loses more attention", all(a < b for a, b in zip(losses, losses[1:])), losses)
    check("and more of its entries were needed", all(a <= b for a, b in zip(shares, shares[1:])) and shares[0] < shares[-1], shares)
    # --needle: the needle is tokens 3 to 7, with the values "12" (tokens 4 and 5) and "7a" (token 7)
    words = [f" w{i}" for i in range(T)]
    words[4:6], words[7] = [" 1", "2."], " 7A,"
    spans = [{"name": "needle", "tokens": [[3, 8]]}, {"name": "value", "tokens": [[4, 6]]}, {"name": "value", "tokens": [[7, 8]]}]

    def needle(name, text, spans=spans, T=T, question=0):
        run = {"prompt_tokens": PROMPT - question, "question_tokens": question}
        return make(write_kvf, os.path.join(folder, name), [Column(c.name, c.dtype, c.space, c.values[..., :T], flags=c.flags) for c in columns(False)],
                    (L, H, G, T), {"run": run, "spans": spans}, words[:T], note=None if text is None else {"result": {"stop": "length" if text else "eos", "text": text}})

    for text, right in (("It is 12 and 7a.", 1), ("7A312\n", 1), ("12", 0), ("1 2 and 7a", 0), ("no", 0)):
        data, meta = table(kvfate, "fates", needle("needle.kvf", text, question=3), "--needle", "needle", "--points", "2")
        alive = [sum(i <= PROMPT < (evict[l, h, i] if evict[l, h, i] != ALIVE else T + 1) for l, h in every) / len(every) for i in range(PROMPT)]
        check(f"answer {text!r}", set(data["right"]) == {right} and set(data["answer"]) == {text.replace("\n", " ")}, set(data["right"]), set(data["answer"]))
        check("the right answer", set(data["expected"]) == {"12, 7A"}, set(data["expected"]))
        check("the tokens of the needle", data["needle"][:T] == [int(3 <= i < 8) for i in range(T)], data["needle"][:T])
        check("the first step is that of the answer", set(data["step"][:T]) == {PROMPT}, set(data["step"][:T]))
        check("heads that cache a token when the answer begins", np.allclose(data["held"][:PROMPT], alive, atol=1e-12) and 0 < sum(alive) < PROMPT, data["held"][:PROMPT])
    data, _ = table(kvfate, "fates", needle("plain.kvf", "It is 12.", []), "--needle", "none")
    check("no known answer", set(data["right"]) == {-1} and set(data["needle"]) == {0} and set(data["answer"]) == {"It is 12."}, set(data["right"]))
    data, _ = table(kvfate, "fates", needle("nul.kvf", "a\0 12\\u0000 7a"), "--needle", "needle", "--points", "2")
    check("NUL characters are blanks", set(data["answer"]) == {"a  12\\u0000 7a"} and set(data["right"]) == {1}, set(data["answer"]))
    data, _ = table(kvfate, "fates", needle("ended.kvf", ""), "--needle", "needle", "--points", "2")
    check("an answer that ended at once is wrong", set(data["answer"]) == {""} and set(data["right"]) == {0}, set(data["answer"]))
    # a phrase of the prompt instead of a span: its tokens, and an answer that must contain it
    for phrase, marked, text, right in (("2. w6", {5, 6}, "2. W6!", 1), ("2. w6", {5, 6}, "2", 0), ("w7", set(), "", None), (" w1", {1, *range(10, 20)}, "a w1", 1)):
        trace_of = needle("phrase.kvf", text, [])
        if right is None:
            refused("a phrase that the prompt lacks", 2, ["fates", trace_of, "--needle", phrase], "'w7'", "phrase of its prompt")
            continue
        data, _ = table(kvfate, "fates", trace_of, "--needle", phrase, "--points", "2")
        check(f"phrase {phrase!r}: its tokens", {i for i in range(T) if data["needle"][i]} == {i for i in marked if i < PROMPT}, data["needle"][:T])
        check(f"phrase {phrase!r}: the answer {text!r}", set(data["right"]) == {right} and set(data["expected"]) == {phrase.strip()}, set(data["right"]), set(data["expected"]))
    refused("no span", 2, ["fates", needle("plain.kvf", "12", []), "--needle", "needle"], "'needle'", "--spans")
    refused("no value", 2, ["fates", needle("value.kvf", "12", spans[:1]), "--needle", "needle"], "'value'", "--spans")
    refused("a value without text", 2, ["fates", needle("value.kvf", "12", [spans[0], {"name": "value", "tokens": []}]), "--needle", "needle"], "no text")
    refused("no answer", 1, ["fates", needle("value.kvf", None), "--needle", "needle"], "no answer", "--force")
    refused("no step after the prompt", 2, ["fates", needle("value.kvf", "12", T=PROMPT), "--needle", "needle"], "no step")
    for bad in ("0", "1.5", "x"):
        refused(f"--needed {bad}", 2, ["fates", x, "--needed", bad], "--needed")
    refused("a column is missing", 1, ["fates", trace("nothing.kvf", [])], "evict_step", "--probes evict")
    refused("a step beyond", 2, ["fates", x, "--from", str(T)], "--from", str(T - 1))
    refused("query heads", 2, ["fates", x, "--head", "L0H0"], "KV")

finish()
