/* fuzz_report.c - the page of a trace (any_trace.h) with the tables of some analyses. */
#include "any_analysis.h"
#include "fuzz.h"
#include "render/report/report.h"

enum { MOST_TABLES = 3, MOST_BYTES = 20 << 20 };

static void add(struct report *r, struct source *s, struct kvf_trace *t)
{
    struct any_analysis x;
    struct kvf_diag d = {""};
    if (!any_analysis(s, &x))
        return;
    struct table *table = any_run(&x, t, &d);
    int err = table ? report_table(r, x.a->name, "kvfate x", table, NULL)
                    : report_absent(r, x.a->name, d.text);
    MUST(err == KVF_OK);
    table_destroy(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char path[64];
    struct source s = {data, n}, analyses;
    struct report *r = NULL;
    struct kvf_diag d = {""};
    int64_t bytes = -1;
    if (n < 24 || n > 1024)
        return 0;
    analyses = (struct source){data, 24};
    take(&s, 8);
    take(&s, 8);
    take(&s, 8);
    struct any_open o = any_open(&s);
    unsigned b = (unsigned)take(&analyses, 1);
    if (!path[0])
        snprintf(path, sizeof path, "/dev/shm/kvf-fuzz-%d.html", (int)getpid());
    if (o.t) {
        MUST(report_create(&r) == KVF_OK && report_command(r, "kvfate report") == KVF_OK);
        MUST(report_trace(r, "a.kvf") == KVF_OK);
        for (int k = 0; k < MOST_TABLES; k++)
            add(r, &analyses, o.t);
        MUST(report_write(r, b % 4 ? MOST_BYTES : b << 12, path, NULL, &bytes, &d) == KVF_OK);
        MUST(bytes > 0 && report_whole(r) >= 0);
        unlink(path);
    }
    report_destroy(r);
    any_close(&o);
    return 0;
}
