"""Write the demo's page from the list of what was run and drawn.

usage: gallery.py LIST.tsv PAGE.html     (standard library only)

Lines of the list: run METHOD COMMAND / section TITLE TEXT / figure PNG CAPTION COMMAND.
"""
import html
import json
import os
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from kvfate import files  # noqa: E402


def png_size(path):
    with open(path, "rb") as f:
        return struct.unpack(">II", f.read(24)[16:24])


def read_text(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read().strip()


def table_of_runs(runs):
    rows = []
    for method, command in runs:
        with open(method.partition(":")[0] + ".json", encoding="utf-8") as f:
            r = json.load(f)
        cells = [method, r["budget"] or "-", r["prompt_tokens"], r["generated_tokens"],
                 f"{r['prefill_tokens_per_second']:.0f}", f"{r['decode_tokens_per_second']:.0f}",
                 f"{r['kv_entries_end']:,}", f"{r['trace_bytes'] / 1e6:.1f}"]
        rows.append("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in cells) + "</tr>")
        if " --force " not in command:
            rows.append(f'<tr><td class="answer" colspan="{len(cells)}"><details><summary>its answer, the text of all runs</summary>'
                        f'{html.escape(r["text"].strip())}</details></td></tr>')
    head = ("method", "budget", "prompt tokens", "answer tokens", "prefill tok/s", "decode tok/s",
            "entries at the end", "trace, MB")
    return ("<table><tr>" + "".join(f"<th>{h}</th>" for h in head) + "</tr>" + "\n".join(rows) + "</table>"
            + "<details><summary>the commands</summary><pre>" + "\n".join(html.escape(c) for _, c in runs) + "</pre></details>")


def figure(png, caption, command):
    w, h = png_size(png)
    said, seen = read_text(os.path.splitext(png)[0] + ".txt"), ""
    if command.split()[-1] == "--caption" or " --caption " in command:
        seen, _, said = said.partition("\n")
        seen = f"<p>{html.escape(seen)}</p>"
    return (f'<figure><img src="{png}" width="{w // 2}" height="{h // 2}" style="height:auto" '
            f'alt="{html.escape(caption)}" loading="lazy"><figcaption><b>{html.escape(caption)}</b>{seen}'
            f'<pre>$ {html.escape(command)}\n<span class="said">{html.escape(said)}</span></pre>'
            f"</figcaption></figure>")


INTRO = """<p>A small model, SmolLM2-135M-Instruct, reads a problem of about a thousand tokens and answers it with a full
KV cache. Four cache methods then process the same text with at most 256 entries for each KV head. Each trace records
when every entry was evicted, and which later queries would have attended to it. The model is too small to solve the
problem. The page shows what each method keeps, evicts and would have needed.</p>
<p class="lead"><a href="report.html">Explore any token in every head</a>: the same runs on an interactive page.</p>"""


def main(list_path, page_path):
    with open(list_path, encoding="utf-8") as f:
        items = [line.rstrip("\n").split("\t") for line in f]
    runs = [(i[1], i[2]) for i in items if i[0] == "run"]
    titles = [i[1] for i in items if i[0] == "section"]
    body = ["<h1>The fate of a KV cache</h1>", INTRO, "<nav>"]
    body += [f'<a href="#s{n}">{html.escape(t)}</a>' for n, t in enumerate(titles)]
    body += ["</nav>"]
    n = 0
    for item in items:
        if item[0] == "section":
            if n == 1:  # after the comparison of the methods
                body += ["<h2>The runs</h2>", table_of_runs(runs)]
            body.append(f'<h2 id="s{n}">{html.escape(item[1])}</h2><p>{html.escape(item[2])}</p>')
            n += 1
        elif item[0] == "figure":
            body.append(figure(*item[1:4]))
    body.append("<footer>Made by kvfate's demo.sh. Each figure is the output of the command under it; "
                "other endings of -o give SVG, PDF, TSV, CSV, JSON or NPZ.</footer>")
    files.write(page_path, '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>kvfate demo</title>'
                '<meta name="viewport" content="width=device-width, initial-scale=1">'
                '<link rel="stylesheet" href="style.css"></head><body><main>\n'
                + "\n".join(body) + "\n</main></body></html>\n")


main(*sys.argv[1:3])
