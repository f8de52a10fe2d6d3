/* flips.c - flips single bits of traces and truncates traces, and checks that every change is
 * detected.
 *
 *   flips make FOLDER              writes the traces of tests/format/tiny.h, closed and unfinished
 *   flips total FOLDER             prints how many bits and how many lengths its files have
 *   flips judge FOLDER FIRST N     flips number FIRST .. FIRST + N - 1, and one cut for eight flips
 *
 * All files except names ending in ".tail" are traces; a tail is checked through its trace. Numbers
 * cover all bits of all files in a scattered order, so that any range of them includes every file.
 * This also holds for cuts and lengths. The files are changed and restored. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/endure/compare.h"
#include "tests/format/tiny.h"
#include "tests/scoped.h"

enum { MOST_FILES = 64, NAME = 256, MODES = KVF_OPEN_SALVAGE + 1, TOLD = 20 };
static const char tail_suffix[] = ".tail";

struct subject {
    char name[NAME]; /* of the trace that is opened */
    bool in_tail;    /* the trace's tail file is damaged */
    unsigned char *p;
    size_t n;
    struct reference *r;   /* of the trace */
    struct reference *own; /* of the damaged file */
    bool alone;            /* the trace is read without a tail */
    bool opens[MODES];
    struct kvf_check check;
    int err;
};

struct counts {
    uint64_t flips, cuts, noticed, padding, torn, opened, findings;
};

static struct subject subjects[MOST_FILES];
static int n_subjects;
static struct counts counts;

static void finding(const struct subject *s, const char *what, size_t at, unsigned bit)
{
    if (counts.findings++ < TOLD)
        printf("finding: %s%s, byte %zu, %s%u: %s\n", s->name, s->in_tail ? tail_suffix : "", at,
               bit < 8 ? "bit " : "cut ", bit, what);
}

static void put(const char *path, const unsigned char *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        exit(2);
    }
}

/* Returns the name of the damaged file. */
static const char *damaged(const struct subject *s)
{
    static char path[NAME + 16];
    snprintf(path, sizeof path, "%s%s", s->name, s->in_tail ? tail_suffix : "");
    return path;
}

/* Writes one byte of the buffer to the file. */
static void patch(const struct subject *s, size_t at)
{
    FILE *f = fopen(damaged(s), "r+b");
    if (!f || fseek(f, (long)at, SEEK_SET) != 0 || fwrite(s->p + at, 1, 1, f) != 1
        || fclose(f) != 0) {
        perror(damaged(s));
        exit(2);
    }
}

/* Verifies the damaged file. */
static int verify(const struct subject *s, struct kvf_check *ret)
{
    memset(ret, 0, sizeof *ret);
    if (!s->in_tail)
        return kvf_verify(s->name, 1, ret, NULL);
    struct kvf_diag d = {""};
    int err = kvf_verify_tail(s->name, 1, ret, &d);
    return err == KVF_OK && d.text[0] ? KVF_E_CORRUPT : err; /* a message: the tail is ignored */
}

static bool same_check(const struct kvf_check *a, const struct kvf_check *b)
{
    return a->records == b->records && a->bad == b->bad && a->lost == b->lost && a->torn == b->torn
           && a->breaks == b->breaks && a->clean == b->clean;
}

struct seen {
    bool noticed; /* by verify */
    bool wrong;
    bool all; /* opens in the modes of the undamaged trace and shows all contents */
    bool opens[MODES];
    struct shown shown[MODES];
};

static struct seen look(const struct subject *s)
{
    struct seen v = {.all = true};
    struct kvf_check c;
    int err = verify(s, &c);
    v.noticed = err != s->err || !same_check(&c, &s->check);
    for (int mode = 0; mode < MODES; mode++) {
        OWNED(kvf_close) struct kvf_trace *t = NULL;
        v.opens[mode] = kvf_open(s->name, (enum kvf_open_mode)mode, &t, NULL) == KVF_OK;
        v.all &= v.opens[mode] == s->opens[mode];
        if (!v.opens[mode])
            continue;
        counts.opened++;
        v.shown[mode] = reference_compare(s->r, t);
        v.wrong |= v.shown[mode].wrong;
        v.all &= v.shown[mode].complete;
    }
    return v;
}

static void judge_flip(struct subject *s, size_t at, unsigned bit)
{
    s->p[at] ^= (unsigned char)(1u << bit);
    patch(s, at);
    struct seen v = look(s);
    s->p[at] ^= (unsigned char)(1u << bit);
    patch(s, at);
    counts.flips++;
    counts.noticed += v.noticed;
    if (v.wrong)
        finding(s, "a wrong value", at, bit);
    if (v.noticed)
        return;
    bool torn = at >= s->n - s->check.torn; /* in an incomplete record */
    if (!torn && !reference_is_padding(s->own, at))
        finding(s, "nothing is noticed", at, bit);
    else if (!v.all)
        finding(s, "a byte that fills up carries something", at, bit);
    else if (torn)
        counts.torn++;
    else
        counts.padding++;
}

/* Truncates the file to len bytes. It must show the last complete snapshot, and verify must not
 * accept it as complete. */
static void judge_cut(struct subject *s, size_t len)
{
    if (truncate(damaged(s), (off_t)len) != 0)
        exit(2);
    struct seen v = look(s);
    put(damaged(s), s->p, s->n);
    counts.cuts++;
    if (v.wrong)
        finding(s, "a wrong value", len, 8);
    if (len == s->n ? !v.all : s->check.clean && !v.noticed)
        finding(s, len == s->n ? "the whole file is not read" : "not noticed", len, 8);
    struct reference_promise p = reference_promise(s->own, len);
    for (int mode = 0; s->alone && mode < MODES; mode++) {
        bool must = mode == KVF_OPEN_STRICT ? len == s->n && s->opens[mode] : p.readable;
        if (v.opens[mode] != must)
            finding(s, must ? "does not open" : "opens", len, 8);
        else if (must && len < s->n
                 && (v.shown[mode].epoch != p.epoch || v.shown[mode].n_steps != p.n_steps
                     || v.shown[mode].lost))
            finding(s, "not the last whole snapshot", len, 8);
    }
}

/* ---- the files */

static bool ends(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n > k && strcmp(name + n - k, suffix) == 0;
}

/* Adds a trace or a tail as a subject. */
static void add(const char *name)
{
    struct subject *s = &subjects[n_subjects++];
    *s = (struct subject){.in_tail = ends(name, tail_suffix), .own = reference_open(name)};
    s->p = slurp(name, &s->n);
    snprintf(s->name, sizeof s->name, "%s", name);
    if (s->in_tail)
        s->name[strlen(name) - strlen(tail_suffix)] = 0;
    s->r = s->in_tail ? reference_open(s->name) : s->own;
    if (!s->r || !s->own || n_subjects == MOST_FILES) {
        fprintf(stderr, "%s: cannot be read\n", name);
        exit(2);
    }
    s->err = verify(s, &s->check);
    for (int mode = 0; mode < MODES; mode++) {
        OWNED(kvf_close) struct kvf_trace *t = NULL;
        s->opens[mode] = kvf_open(s->name, (enum kvf_open_mode)mode, &t, NULL) == KVF_OK;
        if (!s->opens[mode])
            continue;
        s->alone = !s->in_tail && kvf_epoch(t) == reference_promise(s->own, s->n).epoch;
        if (!reference_compare(s->r, t).complete)
            finding(s, "the good file is not read", 0, 8);
    }
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Loads all files of a folder and makes it the working directory. */
static void load(const char *folder)
{
    struct dirent **list;
    int n = scandir(folder, &list, no_dots, by_name);
    if (n < 1 || chdir(folder) != 0) {
        perror(folder);
        exit(2);
    }
    for (int i = 0; i < n; i++) {
        add(list[i]->d_name);
        free(list[i]);
    }
    free(list);
}

static int make(const char *folder)
{
    struct kvf_writer *w = NULL;
    int err = chdir(folder) != 0 || tiny_create("tiny.kvf") ? 1
                                                            : tiny_open("stopped.kvf", &w, NULL);
    for (uint32_t e = 1; !err && e <= TINY_EPOCHS; e++)
        err = tiny_write(w, e);
    kvf_writer_abandon(w);
    return err != KVF_OK;
}

/* Returns number i of an order that visits each of `total` places once. */
static uint64_t jump(uint64_t i, uint64_t total)
{
    static const uint64_t steps[] = {1000000007, 998244353, 754974721, 1};
    int k = 0;
    while (total % steps[k] == 0 && steps[k] > 1)
        k++;
    return i % total * steps[k] % total; /* there are fewer than 2^33 */
}

static void judge(uint64_t first, uint64_t n, uint64_t bytes, uint64_t lengths)
{
    for (uint64_t i = first; i < first + n; i++) {
        uint64_t bit = jump(i % (8 * bytes), 8 * bytes), at = bit / 8;
        int k = 0;
        for (; at >= subjects[k].n; k++)
            at -= subjects[k].n;
        judge_flip(&subjects[k], (size_t)at, (unsigned)(bit % 8));
        if (i % 8 != 7)
            continue;
        at = jump(i / 8 % lengths, lengths);
        for (k = 0; at > subjects[k].n; k++)
            at -= subjects[k].n + 1;
        judge_cut(&subjects[k], (size_t)at);
    }
}

int main(int argc, char **argv)
{
    uint64_t bytes = 0, lengths = 0;
    if (argc == 3 && strcmp(argv[1], "make") == 0)
        return make(argv[2]);
    if (argc < 3)
        return 2;
    load(argv[2]);
    for (int i = 0; i < n_subjects; i++) {
        bytes += subjects[i].n;
        lengths += subjects[i].n + 1;
    }
    if (strcmp(argv[1], "total") == 0)
        printf("%" PRIu64 " bits %" PRIu64 " lengths\n", 8 * bytes, lengths);
    else if (strcmp(argv[1], "judge") == 0 && argc == 5)
        judge(strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), bytes, lengths);
    printf("flips %" PRIu64 "\ncuts %" PRIu64 "\nnoticed %" PRIu64 "\npadding %" PRIu64
           "\ntorn %" PRIu64 "\nopened %" PRIu64 "\nfindings %" PRIu64 "\n",
           counts.flips, counts.cuts, counts.noticed, counts.padding, counts.torn, counts.opened,
           counts.findings);
    return counts.findings != 0;
}
