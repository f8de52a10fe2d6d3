#!/usr/bin/env python3
"""Print nfc_tables.h: what Unicode's normal form C is made of, from Python's own copy of the database.

usage: nfc_tables.py > nfc_tables.h
"""
import sys
import unicodedata


def rows(values, width=100):
    line = "   "
    for v in values:
        if len(line) + len(v) + 2 > width:
            yield line
            line = "   "
        line += " " + v + ","
    yield line


def array(comment, kind, name, values):
    print(f"\n/* {comment} */\nstatic const {kind} {name} = {{")
    print("\n".join(rows(values)))
    print("};")


def main():
    singles, pairs, classes = [], [], []
    for cp in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(cp)).split()
        if parts and not parts[0].startswith("<"):
            (singles if len(parts) == 1 else pairs).append((cp, *(int(p, 16) for p in parts)))
        order = unicodedata.combining(chr(cp))
        if order and classes and classes[-1][1] == cp - 1 and classes[-1][2] == order:
            classes[-1] = (classes[-1][0], cp, order)
        elif order:
            classes.append((cp, cp, order))
    joined = [(a, b, i) for i, (cp, a, b) in enumerate(pairs) if unicodedata.normalize("NFC", chr(a) + chr(b)) == chr(cp)]
    print("/* nfc_tables.h - the parts of Unicode's normal form C, without those of Hangul; made by\n"
          f" * nfc_tables.py from the database of Unicode {unicodedata.unidata_version}. */\n"
          "/* clang-format off */\n#ifndef KVF_ENGINE_NFC_TABLES_H\n#define KVF_ENGINE_NFC_TABLES_H\n\n#include <stdint.h>")
    array("Characters that are another one.", "uint32_t", "nfc_single[][2]", (f"{{{c},{a}}}" for c, a in singles))
    array("Characters that are two others.", "uint32_t", "nfc_pair[][3]", (f"{{{c},{a},{b}}}" for c, a, b in pairs))
    array("Numbers of the pairs that are joined again, in the order of their two parts.", "uint16_t", "nfc_join[]",
          (str(i) for _, _, i in sorted(joined)))
    array("Combining classes other than 0: first and last character, class.", "uint32_t", "nfc_class[][3]",
          (f"{{{a},{b},{k}}}" for a, b, k in classes))
    print("\n#endif")


if __name__ == "__main__":
    main()
