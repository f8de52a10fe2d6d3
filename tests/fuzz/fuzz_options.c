/* fuzz_options.c - texts that users type: options, methods, probes, sets of heads, numbers. */
#include <math.h>
#include <string.h>

#include <kvf/trace.h>

#include "analyzers/common.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/table_io.h"
#include "base/utf8.h"
#include "cli/where.h"
#include "engine/method/preset.h"
#include "engine/probe/recorder.h"
#include "fuzz.h"
#include "tests/scoped.h"

static void check_method(const char *text, int budget)
{
    struct method m = {0};
    struct method_params p;
    struct kvf_diag d = {""};
    int err = method_parse(text, budget, &m, &p, &d);
    MUST(err == KVF_OK || (err == KVF_E_ARG && d.text[0]));
    if (err)
        return;
    MUST(p.sinks >= 0 && p.recent >= 0 && p.window >= 0 && p.pool >= 1);
    MUST(!m.score || p.budget == 0 || (p.sinks + p.recent <= p.budget && p.pool % 2 == 1));
}

/* Parses words separated by the byte 1, as NUL ends the text. */
static void check_options(char *text)
{
    static const char *const words[] = {"one", "two", NULL};
    struct values {
        const char *word;
        int64_t whole;
        double real;
        struct opt_list many;
        int choice;
        bool flag;
    } v = {0};
    static const struct opt list[] = {
        {OPT_FLAG, 'q', "quiet", offsetof(struct values, flag), NULL, ""},
        {OPT_STR, 's', "str", offsetof(struct values, word), "S", ""},
        {OPT_INT, 'n', "int", offsetof(struct values, whole), "N", "", "5", .min = -3, .max = 100},
        {OPT_REAL, 0, "real", offsetof(struct values, real), "X", "", "0.5", .max = 1},
        {OPT_LIST, 'l', "list", offsetof(struct values, many), "L", ""},
        {OPT_WORD, 'w', "word", offsetof(struct values, choice), "W", "", "two", .words = words},
        {.type = OPT_END},
    };
    bool help = false;
    char *argv[128] = {(char *)(uintptr_t) "x"};
    struct kvf_diag d = {""};
    int argc = 1, operands = -1;
    for (char *at = text; at && argc < 128;) {
        argv[argc++] = at;
        at = strchr(at, 1);
        if (at)
            *at++ = 0;
    }
    MUST(opt_defaults(list, &v, &d) == KVF_OK);
    int err = opt_parse(list, &v, argc, argv, &operands, &help, &d);
    MUST(err == KVF_OK || (err == KVF_E_ARG && d.text[0]));
    MUST(err || help || (operands >= 0 && operands < argc));
    MUST(v.whole >= -3 && v.whole <= 100 && v.real >= 0 && v.real <= 1 && v.many.n < argc
         && (v.choice == 0 || v.choice == 1));
    opt_finish(list, &v);
}

static struct kvf_trace *small_trace(void)
{
    static const uint16_t heads[] = {2, 2, 4, 4};
    struct kvf_shape shape = {2, heads, heads + 2};
    struct kvf_column column = {"mass.sum", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, 0, ""};
    struct kvf_writer *w = NULL;
    struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    char path[] = "/tmp/kvf-fuzz-XXXXXX"; /* a trace needs a real folder */
    int fd = mkstemp(path);
    MUST(fd >= 0);
    MUST(kvf_writer_open(path, "{}", &shape, &column, 1,
                         &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w, &d)
         == KVF_OK);
    MUST(kvf_writer_commit(w, 1, 0) == KVF_OK && kvf_writer_close(w, &d) == KVF_OK);
    MUST(kvf_open(path, KVF_OPEN_STRICT, &t, &d) == KVF_OK);
    close(fd);
    unlink(path);
    return t;
}

static void check_heads(const char *text)
{
    static struct kvf_trace *t;
    if (!t)
        t = small_trace();
    for (enum kvf_space space = KVF_SPACE_KV; space <= KVF_SPACE_QUERY; space++) {
        SCOPED(heads_free) struct head_list l = {0};
        struct kvf_diag d = {""};
        int err = heads_select(t, space, text, &l, &d);
        MUST(err == KVF_OK || (err == KVF_E_ARG && d.text[0]));
        MUST(err || (l.n >= 1 && l.n <= (space == KVF_SPACE_KV ? 4 : 8)));
        for (int i = 1; !err && i < l.n; i++)
            MUST(l.layer[i - 1] < l.layer[i]
                 || (l.layer[i - 1] == l.layer[i] && l.index[i - 1] < l.index[i]));
    }
}

static void check_text(const char *text, size_t n)
{
    struct buf b = {0};
    struct kvf_diag d = {""};
    unsigned set = 0;
    int64_t whole;
    double real;
    char key[16], value[16];
    const char *s = text;
    int more;
    utf8_show(&b, text, n);
    MUST(b.err == KVF_OK && (!b.data || utf8_valid(b.data, b.len)));
    buf_finish(&b);
    MUST(!opt_real(text, &real) || isfinite(real));
    opt_int(text, &whole);
    table_format_of(text);
    while ((more = opt_pair(&s, key, value, 16)) == 1)
        MUST(strlen(key) > 0 && strlen(key) < 16 && strlen(value) < 16 && !strchr(key, ','));
    MUST(more == 0 || more == KVF_E_ARG);
    MUST(probes_parse(text, &set, &d) == KVF_OK || d.text[0]);
    kvf_fail(&d, KVF_E_ARG, "%s", text);
    MUST(strlen(d.text) < sizeof d.text && !strchr(d.text, '\n'));
}

/* A condition on traces must be rejected with a message, or evaluate for any trace. */
static void check_where(const char *text)
{
    struct trace_facts f = {0};
    OWNED(where_free) struct where *w = NULL;
    struct kvf_diag d = {""};
    int err = where_parse(text, &w, &d);
    MUST(err == KVF_OK || (err == KVF_E_ARG && d.text[0]));
    if (err)
        return;
    MUST(facts_unreadable("x.kvf", &f) == KVF_OK);
    where_holds(w, &f);
    MUST(where_holds(NULL, &f));
    facts_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2 || n > 4096)
        return 0;
    OWNED(free) char *text = malloc(n - 1);
    MUST(text);
    memcpy(text, data + 2, n - 2);
    text[n - 2] = 0;
    if (data[0] % 4 == 0)
        check_method(text, data[1] * 3);
    else if (data[0] % 4 == 1)
        check_heads(text);
    else if (data[0] % 8 == 2)
        check_text(text, strlen(text));
    else if (data[0] % 8 == 6)
        check_where(text);
    else
        check_options(text);
    return 0;
}
