/* diff_report.c - a comparison of two traces for people. */
#include <math.h>
#include <string.h>

#include "studies/diff.h"

static const char *str(const struct table *t, const char *column, int64_t row)
{
    return table_row_str(t, row, column);
}

static int64_t whole(const struct table *t, const char *column, int64_t row)
{
    return table_row_int(t, row, column);
}

/* A value cut to a line: its first bytes, no character torn. */
static void say_value(struct buf *out, const char *s)
{
    enum { SHOWN = 60 };
    size_t n = strlen(s), shown = n < SHOWN ? n : SHOWN;
    while (shown < n && shown > 0 && ((unsigned char)s[shown] & 0xc0) == 0x80)
        shown--;
    if (!n)
        buf_char(out, '-');
    buf_add(out, s, shown);
    if (shown < n)
        buf_str(out, "...");
}

static void say_pair(const struct table *t, int64_t row, struct buf *out)
{
    say_value(out, str(t, "a", row));
    buf_str(out, " | ");
    say_value(out, str(t, "b", row));
}

static void say_row(const struct table *t, int64_t row, struct buf *out)
{
    const char *state = str(t, "state", row), *head = str(t, "head", row);
    double largest = table_row_real(t, row, "largest");
    buf_printf(out, "  %-22s ", str(t, "name", row));
    if (strcmp(state, "differs") != 0) {
        if (strcmp(state, "only_a") == 0)
            buf_str(out, "only in A");
        else if (strcmp(state, "only_b") == 0)
            buf_str(out, "only in B");
        else if (strcmp(state, "type") == 0)
            buf_printf(out, "other heads or axis: %s | %s", str(t, "type_a", row),
                       str(t, "type_b", row));
        else
            buf_str(out, "another number of heads or tokens");
        buf_char(out, '\n');
        return;
    }
    buf_printf(out, "%lld of %lld differ, first at %s%s%lld: ", (long long)whole(t, "differ", row),
               (long long)whole(t, "compared", row), head, *head ? " " : "",
               (long long)whole(t, "index", row));
    say_pair(t, row, out);
    if (!isnan(largest))
        buf_printf(out, "; largest difference %.6g", largest);
    if (whole(t, "undefined", row))
        buf_printf(out, "; %lld defined in one alone", (long long)whole(t, "undefined", row));
    buf_char(out, '\n');
}

void diff_describe(const struct table *t, struct buf *out)
{
    int64_t equal = 0, n = table_rows(t);
    bool headed = false;
    for (int64_t r = 0; r < n; r++) {
        bool header = strcmp(str(t, "kind", r), "header") == 0;
        if (strcmp(str(t, "state", r), "equal") == 0) {
            equal += strcmp(str(t, "kind", r), "column") == 0;
        } else if (header) {
            buf_printf(out, "%s  %-22s ", headed ? "" : "run header\n", str(t, "name", r));
            say_pair(t, r, out);
            buf_char(out, '\n');
            headed = true;
        }
    }
    if (strcmp(table_meta(t, "equal"), "yes") != 0)
        buf_str(out, "columns\n");
    for (int64_t r = 0; r < n; r++)
        if (strcmp(str(t, "kind", r), "header") != 0 && strcmp(str(t, "state", r), "equal") != 0)
            say_row(t, r, out);
    buf_printf(out, "  %lld columns are equal\n", (long long)equal);
}
