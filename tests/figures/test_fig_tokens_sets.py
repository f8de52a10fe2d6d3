"""Check the figure tokens-sets on a synthetic table.  usage: test_fig_tokens_sets.py DRAW_TABLE"""
import collections
import os
import random
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import draw, paths, tsv, words_of

COLUMNS, N, NAMES = ["token", "kept", "trace"], 200, ["h2o", "snapkv", "trimkv"]
rng = random.Random(3)
held = [[rng.random() < p for _ in range(N)] for p in (.5, .3, .2)]
masks = collections.Counter(tuple(h[i] for h in held) for i in range(N))
BAR, DARK, INK = (184, 186, 194), (84, 94, 112), (31, 31, 31)


def rows(n=3):
    return [(i, int(held[k % 3][i]), k + 1) for k in range(n) for i in range(N)]


meta = {f"trace_{k + 1}": name for k, name in enumerate(NAMES)}
code, svg, said = draw(tsv("tokens", COLUMNS, rows(), **meta), "tokens-sets")
check("drawn", code == 0 and not said, said)
want = sorted((n for m, n in masks.items() if any(m)), reverse=True)
bars = sorted((min(x for x, _ in p), max(y for _, y in p) - min(y for _, y in p), fill) for fill, _, p, _, _ in paths(svg) if fill in (BAR, DARK))
high = [h for _, h, _ in bars]
check("a bar for each combination, the largest first", len(high) == len(want) and all(abs(h / high[0] - n / want[0]) < .01 for h, n in zip(high, want)),
      (high, want))
check("sizes and what no run holds", all(str(sum(h)) in words_of(svg) for h in held) and f"no run: {masks[(False,) * 3]}" in words_of(svg) and f"{N} entries" in words_of(svg), words_of(svg))
sizes = [sum(h) / N for h in held]
base = max(y for fill, _, p, _, _ in paths(svg) if fill in (BAR, DARK) for _, y in p)
order = [m for m, _ in sorted(masks.items(), key=lambda m: (-m[1], sum(b << k for k, b in enumerate(m[0])))) if any(m)]
chance = [N * sizes[0] ** m[0] * (1 - sizes[0]) ** (not m[0]) * sizes[1] ** m[1] * (1 - sizes[1]) ** (not m[1])
          * sizes[2] ** m[2] * (1 - sizes[2]) ** (not m[2]) for m in order]
ticks = [base - y for _, y in sorted(p[0] for fill, stroke, p, _, _ in paths(svg) if stroke == INK and len(p) == 2 and abs(p[0][1] - p[1][1]) < 1e-6 and p[1][0] - p[0][0] > 1.5)]
check("by chance", len(ticks) == len(chance) and all(abs(t / high[0] - c / want[0]) < .01 for t, c in zip(ticks, chance)), (ticks, chance))
above = [n / c >= 1.1 for n, c in zip([masks[m] for m in order], chance)]
check("dark bars are 1.1 times chance or more", [f == DARK for *_, f in bars] == above and any(above) and not all(above), above, bars)
check("with their quotients", all(f"{masks[m] / c:.1f}\u00d7" in words_of(svg) for m, c, a in zip(order, chance, above) if a), words_of(svg))
full = [(i, int((i + k) % 3 > 0), k + 1) for k in range(3) for i in range(N - N % 3)]
said = words_of(draw(tsv("tokens", COLUMNS, full, **meta), "tokens-sets")[1])
check("no bars of equal sizes", str(2 * (N // 3)) not in said, said)
whole = [r + ("all",) for r in rows()]  # all heads: a token counts if at least half of them keep it
said = words_of(draw(tsv("tokens", COLUMNS + ["head"], whole, **meta), "tokens-sets")[1])
check("tokens are not called entries", f"{N} tokens" in said and "half of the heads" in said and "cached tokens" in said and "entries" not in said, said)
each = [r + ("L0K0",) for r in rows()]
said = words_of(draw(tsv("tokens", COLUMNS + ["head"], each, **meta), "tokens-sets")[1])
check("entries of one head", f"{N} entries" in said and "cached entries" in said and "tokens" not in said, said)
code, svg, said = draw(tsv("tokens", COLUMNS, rows(), **meta), "tokens-sets", style="top=2")
check("top", code == 0 and len([1 for fill, *_ in paths(svg) if fill in (BAR, DARK)]) == 2 and f"largest 2 of {len(order)} combinations" in words_of(svg), said)
code, _, said = draw(tsv("tokens", COLUMNS, rows(9)), "tokens-sets")
check("too many traces", code == 2 and "at most 8" in said, said)
code, svg, said = draw(tsv("tokens", COLUMNS, []), "tokens-sets")
check("an empty table", code == 0 and "no data" in words_of(svg), code, said)
finish()
