"""Small synthetic traces without a model, of the kinds usual, small, one, zero and bare.

usual: 3 layers, 2 KV heads, 4 query heads, 40 tokens whose texts are difficult for table files.
bare: the same without evictions and ages.  small: 25 tokens of another model with 2
layers.  one: 1 token.  zero: no tokens.  Head h at token i has
evict_step = i + 3 + (7 i + h) mod 20, alive from T on, and last_selected.C = (5 i + 3 h + c) mod
(T - i), never if (i + h) mod 9 = 4."""
import os
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyze"))
from maker import AGE, ALIVE, SNAPSHOT, Column, make  # noqa: E402

H, G = 2, 4
META = (r'{"kvf":{"version":"0"},"model":{"name":"a <b> & \"c\", d\te\u0001f ]]> \u4f60","hash":"00","query_heads":4,"kv_heads":2},'
        r'"run":{"prompt_tokens":30},"method":{"name":"made-up","budget":1000}}')
TEXTS = [b"<|im_start|>", b" a,b", b'say "hi"', b"\n", b"\r\n", b"\t", b"\0", b"x\0y", b"\xff\xfe", b"\xe4\xbd", b"\xa0", b"\xf0\x9f\x98", b"\x80",
         b"back\\slash", b"\\n", b"", b"'", b"=1+2", b"<&>", b"]]>", b"42", b";", b"\xc3\xa9", b"\xed\xa0\x80", b"\x1b[31m", b"\xe2\x80\xae",
         b"\xe4\xb8\xad\xe6\x96\x87", b"#", b"# a: b", b"nan"]
CRITERIA = ("top64", "top128", "top256", "top512", "mass.90", "mass.95", "mass.99")


def make_trace(write_kvf, kind, path):
    T, L = {"one": 1, "zero": 0, "small": 25}.get(kind, 40), 2 if kind == "small" else 3
    i, kv, query = np.arange(T), np.arange(L * H).reshape(L, H, 1), np.arange(L * G).reshape(L, G, 1)
    columns = [Column("tokens.id", "i32", "run", i * i), Column("tokens.role", "u8", "run", i >= 30),
               Column("nll", "f32", "run", np.where(i % 6 == 0, np.nan, i / 4))]
    if kind != "bare":
        step = i + 3 + (7 * i + kv) % 20
        gone, score = step < T, np.where(step < T, 1 / (i + 1), np.nan)
        columns += [Column("evict_" + name, dtype, "kv", values, flags=SNAPSHOT) for name, dtype, values in (
            ("step", "u32", np.where(gone, step, ALIVE)), ("reason", "u8", gone), ("score", "f32", score), ("margin", "f32", score),
            ("tie", "u8", gone & (i % 5 == 0)))]
        columns += [Column("last_selected." + name, "u16", "query", np.where((i + query) % 9 == 4, np.nan, (5 * i + 3 * query + c) % (T - i)),
                           flags=SNAPSHOT | AGE) for c, name in enumerate(CRITERIA)]
    meta = META.replace(META.split('"name":"')[1].split('","hash"')[0], "small").replace('"hash":"00"', '"hash":"01"') if kind == "small" else META
    return make(write_kvf, path, columns, (L, H, G, T), meta, [TEXTS[k % len(TEXTS)] for k in range(T)])
