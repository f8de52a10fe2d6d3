#!/usr/bin/python3
"""A second reader of safetensors: prints the contents of a file, or fails.

usage: read_safetensors.py FILE

One line each: "meta KEY VALUE" as JSON, then "NAME DTYPE SHAPE HEX..." in file order, with numbers
as the bits of their f32. The checksum that kvfate adds is "@".
"""
import json
import struct
import sys

import numpy as np


def main():
    with open(sys.argv[1], 'rb') as f:
        raw = f.read()
    n, = struct.unpack_from('<Q', raw)
    assert n % 8 == 0, n
    header = json.loads(raw[8:8 + n].decode('utf-8'))
    data = raw[8 + n:]
    for key, value in header.pop('__metadata__', {}).items():
        checksum = key == 'kvfate.checksum' and len(value) == 32 and set(value) <= set('0123456789abcdef')
        print('meta', json.dumps(key), json.dumps('@' if checksum else value))
    at = 0
    for name, t in header.items():
        begin, end = t['data_offsets']
        assert begin == at
        at = end
        kind = {'F32': '<u4', 'BF16': '<u2'}[t['dtype']]
        x = np.frombuffer(data[begin:end], kind).astype(np.uint32)
        assert x.size == int(np.prod(t['shape'], dtype=np.int64))
        if t['dtype'] == 'BF16':
            x <<= 16
        print(name, t['dtype'], json.dumps(t['shape']), *[f'{v:08x}' for v in x])
    assert at == len(data)


main()
