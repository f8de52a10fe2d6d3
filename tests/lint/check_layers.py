#!/usr/bin/env python3
"""Who may include whom: rooms, rooms inside the engine, private headers, fences; and who calls
whom: no circles (circles.py)."""
import functools
import re
import sys

import circles
import lint

# A room may include itself and these.  base <- libtrace <- {engine, analyzers <- studies};
# render sees base alone; cli sees all.
ROOMS = {
    'base': [],
    'libtrace': ['base'],
    'engine': ['base', 'libtrace'],
    'analyzers': ['base', 'libtrace'],
    'studies': ['base', 'libtrace', 'analyzers'],
    'render': ['base'],
    'cli': ['base', 'libtrace', 'engine', 'analyzers', 'studies', 'render'],
}
# Inside the engine, one way: kernels <- cache <- method <- probe,
# kernels <- model <- gate <- method, decode on top of these, and experiments on top of all.
ENGINE = {
    'kernels': [],
    'cuda': ['kernels'],
    'model': ['kernels'],
    'cache': ['kernels'],
    'gate': ['kernels', 'model'],
    'method': ['kernels', 'model', 'cache', 'gate'],
    'probe': ['kernels', 'cache', 'method'],
    'decode': ['kernels', 'model', 'gate', 'cache', 'method', 'probe'],
    'experiment': ['kernels', 'model', 'gate', 'cache', 'method', 'probe', 'decode'],
    'train': ['kernels', 'model', 'gate', 'cache', 'method', 'probe', 'decode', 'experiment'],
    'device': ['kernels', 'cuda', 'model', 'gate', 'cache', 'method', 'probe', 'decode', 'experiment', 'train'],
}
# Headers, or folders of headers, that only one folder may include.
PRIVATE = {
    'libtrace/layout.h': 'libtrace/',
    'libtrace/reader.h': 'libtrace/',
    'libtrace/writer.h': 'libtrace/',
    'libtrace/crc32c.h': 'libtrace/',
    'libtrace/writer_file.h': 'libtrace/',
    'libtrace/digest.h': 'libtrace/',
    'libtrace/hash.h': 'libtrace/',
    'libtrace/copying.h': 'libtrace/',
    'engine/cache/page_room.h': 'engine/cache/',
    'engine/decode/attention.h': ('engine/decode/', 'engine/device/'),
    'engine/decode/session_state.h': ('engine/decode/', 'engine/device/'),
    'engine/decode/evicted_entries.h': ('engine/decode/', 'engine/device/'),
    'engine/decode/shadow.h': ('engine/decode/', 'engine/device/'),
    'engine/method/state.h': 'engine/method/',
    'engine/method/evidence.h': 'engine/method/',
    'engine/method/shares.h': 'engine/method/',
    'engine/probe/arrays.h': 'engine/probe/',
    'engine/probe/gather.h': 'engine/probe/',
    'engine/gate/state.h': 'engine/gate/',
    'engine/gate/tensor_file.h': ('engine/gate/', 'engine/train/'),
    'engine/model/bpe.h': 'engine/model/',
    'engine/model/gguf_put.h': 'engine/model/',
    'engine/model/hf.h': 'engine/model/',
    'engine/model/hf_files.h': 'engine/model/',
    'engine/model/hf_tokens.h': 'engine/model/',
    'engine/model/keys.h': 'engine/model/',
    'engine/model/merges.h': 'engine/model/',
    'engine/model/jinja.h': 'engine/model/',
    'engine/model/jinja_lex.h': 'engine/model/',
    'engine/model/jinja_node.h': 'engine/model/',
    'engine/model/jinja_run.h': 'engine/model/',
    'engine/model/chat_values.h': 'engine/model/',
    'engine/model/jinja_value.h': 'engine/model/',
    'engine/model/jinja_words.h': 'engine/model/',
    'engine/model/gguf_file.h': 'engine/model/',
    'engine/model/merging.h': 'engine/model/',
    'engine/model/nfc.h': 'engine/model/',
    'engine/model/normalize.h': 'engine/model/',
    'engine/model/pre_known.h': 'engine/model/',
    'engine/model/pretok.h': 'engine/model/',
    'engine/model/rope.h': 'engine/model/',
    'engine/model/tensors.h': 'engine/model/',
    'engine/model/safetensors.h': ('engine/model/', 'engine/gate/'),
    'engine/model/spm.h': 'engine/model/',
    'engine/model/vocab.h': 'engine/model/',
    'engine/kernels/arm/': 'engine/kernels/',
    'engine/kernels/vector/': 'engine/kernels/',
    'engine/kernels/x86/': 'engine/kernels/',
    'engine/kernels/blocks.h': 'engine/kernels/',
    'engine/kernels/kernels_ref.h': 'engine/kernels/',
    'analyzers/common.h': ('analyzers/', 'studies/', 'cli/open_traces.c'),
    'analyzers/lapack.h': 'analyzers/',
    'studies/corpus_rows.h': 'studies/',
    'studies/diff_header.h': ('studies/', 'cli/resume.c', 'cli/record_again.c'),
    'studies/part_state.h': 'studies/',
    'render/report/columns.h': 'render/report/',
    'render/report/pack.h': 'render/report/',
    'render/report/page.h': 'render/report/',
}
# Third-party headers and the files that may include them.
FENCES = [
    (r'cjson/|cJSON', ['base/json.c']),
    (r'minizip/', ['base/table_npz.c']),
    (r'sqlite3', ['base/table_sqlite.c']),
    (r'sys/wait', ['cli/record_again.c']),
    (r'zstd', ['libtrace/codec.c']),
    (r'xxhash', ['libtrace/hash.c', 'engine/model/gguf_get.c', 'engine/model/adapter.c', 'engine/model/hf_files.c',
                 'engine/model/safetensors.c', 'engine/model/vocab.c', 'engine/gate/safetensors_write.c',
                 'engine/gate/tensor_file.c', 'engine/train/']),
    (r'utf8proc', ['engine/model/nfc.c', 'engine/model/tokenizer.c']),
    (r'pcre2', ['engine/model/pretok.c', 'analyzers/classes.c',
                'analyzers/word_list.c']),
    (r'lapack|cblas', ['analyzers/lapack.c']),
    (r'dlfcn', ['analyzers/lapack.c', 'cli/crew_wire.c', 'engine/cuda/blas.cu']),
    # svg_text.c and svg_fonts.c take glyphs from Pango and fonts from HarfBuzz
    (r'cairo|pango', ['render/canvas.c', 'render/canvas_file.c', 'render/canvas_text.c',
                      'render/svg_fonts.c', 'render/svg_text.c']),
    (r'hb', ['render/svg_fonts.c', 'render/svg_text.c']),
    (r'png\.h', ['render/png_out.c']),
    (r'zlib', ['render/png_rows.c', 'render/report/pack.c']),
    (r'immintrin|x86intrin|cpuid', ['engine/kernels/x86/', 'engine/kernels/kernels.c']),
    (r'cuda|cublas', ['engine/cuda/']),
    (r'arm_neon|arm_acle', ['engine/kernels/arm/']),
    # what one system alone has; the sets of os_NAME.c are each other's alternatives
    (r'linux/|sys/(auxv|epoll|eventfd|inotify|prctl|random|sendfile|signalfd|syscall|sysinfo|timerfd)',
     ['base/os_linux.c']),
    (r'sys/file', ['base/replace.c']),
    (r'sys/ioctl', ['base/progress.c']),
    (r'sys/resource', ['cli/common.c']),
    (r'poll\.h', ['cli/score_pipe.c']),
    (r'mpi', ['cli/crew_mpi.c']),
]
# What else <...> may name: ISO C and POSIX, in any room.
SYSTEM = set('''assert ctype dirent errno fcntl float fnmatch inttypes limits math pthread sched setjmp signal stdarg
stdatomic stdbool stddef stdint stdio stdlib string strings sys/mman sys/stat sys/types sys/uio
time unistd'''.split())
PUBLIC = {'kvf/err.h': 'base', 'kvf/trace.h': 'libtrace', 'kvf/copy.h': 'libtrace', 'kvf/schema.h': 'libtrace',
          'kvf/version.h': 'libtrace'}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


@functools.lru_cache(maxsize=None)
def fence_of(name):
    return next((files for pattern, files in FENCES if re.match(pattern, name)), None)


@functools.lru_cache(maxsize=None)
def owner_of(name):
    """The folder or folders that alone may include a header."""
    return next((where for start, where in PRIVATE.items() if name.startswith(start)), '')


@functools.lru_cache(maxsize=None)  # the self-test asks for most files again and again
def includes(text):
    """(whether between quotation marks, name, line) of what C text includes."""
    blanked = lint.blank(text, strings=False)
    return [(m.group(1) == '"', m.group(2), lint.line_of(blanked, m.start())) for m in INCLUDE.finditer(blanked)]


def why_not_system(path, name):
    """What is wrong with #include <name> in path, or None."""
    if name in PUBLIC:
        return why_not_room(path, PUBLIC[name], name)
    files = fence_of(name)
    if files:
        return None if path.startswith(tuple(files)) else \
            f'<{name}> belongs into {", ".join(files)} alone'
    return None if name[:-2] in SYSTEM else f'<{name}> is in no list: fence it to one file'


def why_not_room(path, room, name):
    mine = path.split('/')[0]
    if room == mine or room in ROOMS[mine]:
        return None
    return f'{mine} must not include {name} of {room}'


def why_not_own(root_files, path, name):
    """What is wrong with #include "name" in path, or None."""
    if name == 'config.h':
        return None if path.startswith('cli/') else 'config.h is for cli alone'
    if name not in root_files:
        return f'"{name}" is no path from the root of the tree'
    owner = owner_of(name)
    if not path.startswith(owner):
        return f'"{name}" is private to {owner if isinstance(owner, str) else owner[0]}'
    if '/include/' in name:
        return f'"{name}" is installed: write <kvf/...>'
    here, there = path.split('/'), name.split('/')
    if here[0] == there[0] == 'engine' and here[1] != there[1] \
            and there[1] not in ENGINE[here[1]]:
        return f'engine/{here[1]} must not include {name}'
    return why_not_room(path, there[0], name)


def check(root):
    files = set(lint.tree(root, lint.CODE + ('.list',), lint.ROOMS))
    reports = []
    for path in sorted(files):
        if path.split('/')[0] == 'engine' and path.split('/')[1] not in ENGINE:
            reports.append(f'{path}:1: a new folder of the engine needs its place in the order')
            continue
        for own, name, line in includes(lint.read(root, path)):
            why = why_not_own(files, path, name) if own else why_not_system(path, name)
            if why:
                reports.append(f'{path}:{line}: {why}')
    return reports + circles.check(root)


def include(name):
    return f'#include {name}\n'


PLANTS = [
    lint.Plant('base/rng.c', 'base must not include kvf/trace.h', include('<kvf/trace.h>')),
    lint.Plant('libtrace/codec.c', 'libtrace must not', include('"engine/cache/cache.h"')),
    lint.Plant('analyzers/an_tokens.c', 'analyzers must not',
               include('"engine/method/preset.h"')),
    lint.Plant('analyzers/new.c', 'analyzers must not', include('"render/figure.h"')),
    lint.Plant('analyzers/an_words.c', 'analyzers must not', include('"studies/corpus.h"')),
    lint.Plant('studies/corpus.c', 'studies must not', include('"engine/method/preset.h"')),
    lint.Plant('studies/diff.c', 'studies must not', include('"render/figure.h"')),
    lint.Plant('cli/cmd_diff.c', 'private to studies/', include('"studies/diff_header.h"')),
    lint.Plant('render/heat.c', 'render must not include kvf/trace.h', include('<kvf/trace.h>')),
    lint.Plant('render/axis.c', 'render must not', include('"analyzers/analyzer.h"')),
    lint.Plant('engine/probe/recorder.h', 'engine must not', include('"analyzers/analyzer.h"')),
    lint.Plant('engine/kernels/packed.c', 'engine/kernels must not',
               include('"engine/cache/cache.h"')),
    lint.Plant('engine/method/parts.c', 'engine/method must not',
               include('"engine/probe/probe.h"')),
    lint.Plant('engine/cache/cache.c', 'engine/cache must not',
               include('"engine/decode/session.h"')),
    lint.Plant('engine/model/config.c', 'engine/model must not',
               include('"engine/method/preset.h"')),
    lint.Plant('engine/decode/linear.c', 'engine/decode must not',
               include('"engine/experiment/eval.h"')),
    lint.Plant('engine/gate/gate.c', 'engine/gate must not', include('"engine/cache/cache.h"')),
    lint.Plant('engine/decode/layer.c', 'private to engine/gate/',
               include('"engine/gate/state.h"')),
    lint.Plant('engine/other/new.c', 'needs its place', text='\n'),
    lint.Plant('cli/runner.c', 'private to libtrace/', include('"libtrace/layout.h"')),
    lint.Plant('engine/probe/probe_nll.c', 'private to engine/method/',
               include('"engine/method/state.h"')),
    lint.Plant('engine/cache/cache.c', 'private to engine/kernels/',
               include('"engine/kernels/vector/sets.h"')),
    lint.Plant('cli/cmd_run.c', 'is no path', include('"runner.h"')),
    lint.Plant('base/table.c', 'config.h is for cli', include('"config.h"')),
    lint.Plant('cli/cmd_trace.c', 'write <kvf/', include('"libtrace/include/kvf/trace.h"')),
    lint.Plant('base/table.c', 'base/json.c alone', include('<cjson/cJSON.h>')),
    lint.Plant('render/figure.c', 'render/canvas.c, render/canvas_file.c, render/canvas_text.c',
               '# include <pango/pango.h>\n'),
    lint.Plant('render/canvas.c', 'render/png_out.c alone', include('<png.h>')),
    lint.Plant('render/report/report.c',
               'render/png_rows.c, render/report/pack.c alone',
               include('<zlib.h>')),
    lint.Plant('libtrace/writer.c', 'libtrace/codec.c alone', include('<zstd.h>')),
    lint.Plant('base/json.c', 'base/table_npz.c alone', include('<minizip/zip.h>')),
    lint.Plant('engine/model/chat.c', 'pretok.c', include('<pcre2.h>')),
    lint.Plant('base/utf8.c', 'nfc.c', include('<utf8proc.h>')),
    lint.Plant('base/rng.c', 'hash.c', include('<xxhash.h>')),
    lint.Plant('engine/decode/linear.c', 'engine/kernels/x86/', include('<immintrin.h>')),
    lint.Plant('engine/kernels/kernels.c', 'engine/kernels/arm/', include('<arm_neon.h>')),
    lint.Plant('base/par.c', 'base/os_linux.c alone', include('<linux/futex.h>')),
    lint.Plant('base/os_posix.c', 'base/os_linux.c alone', include('<sys/random.h>')),
    lint.Plant('base/rng.c', 'is in no list', include('<curl/curl.h>')),
    # a circle of two files, and one of three whose calls pass through headers of no file's name
    lint.Plant('base/buf.c', 'circle of uses: base/buf.c -> base/json.c (json_put_key)',
               '\nvoid buf_planted(struct buf *b)\n{\n    json_put_key(b, "x");\n}\n'),
    lint.Plant('engine/decode/linear.c', 'engine/decode/run_cpu.c -> engine/decode/linear.c',
               '\nint attend_planted(struct session *s)\n{\n    return session_begin_step(s);\n}\n'),
    # through a const struct, through a list of plug-ins, and through an inline function of a header
    lint.Plant('engine/method/score_knorm.c', 'engine/method/score_knorm.c -> engine/method/presets.c',
               '\nconst char *knorm_planted(void)\n{\n    return method_presets[0].name;\n}\n'),
    lint.Plant('engine/probe/probe_mass.c', 'engine/probe/probes.c -> engine/probe/probe_mass.c',
               '\nconst void *mass_planted(void)\n{\n    return probe_table[0];\n}\n'),
    lint.Plant('engine/train/compute.c', 'engine/train/compute.c -> engine/train/ops_cpu.c',
               '\n' + include('"engine/train/ops.h"') +
               'void compute_planted(struct compute *c)\n{\n    ops(c)->close(c);\n}\n'),
    lint.Plant('engine/decode/watch.c', 'engine/decode/watch.c -> engine/decode/cpu.c',
               '\nbool watch_planted(const struct session *s)\n{\n    return s->e->backend == &backend_cpu;\n}\n'),
]

if __name__ == '__main__':
    sys.exit(lint.main(check, PLANTS))
