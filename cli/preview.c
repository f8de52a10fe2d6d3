/* preview.c - draws figures on the terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/progress.h"
#include "cli/caption.h"
#include "cli/preview.h"

enum { COLS = 80, MOST_COLS = 400 };

bool preview_wanted(const struct figure_options *look, const struct figure *f, const char *out)
{
    return f && (look->preview || (out && strcmp(out, "-") == 0 && isatty(STDOUT_FILENO)));
}

int preview_check(const struct figure_options *look, const struct figure *f, struct kvf_diag *d)
{
    if (f && look->caption && !f->caption)
        return kvf_fail(d, KVF_E_ARG, "--caption: the figure %s has no caption; leave it out",
                        f->name);
    return f || !look->preview ? KVF_OK
                               : kvf_fail(d, KVF_E_ARG, "--preview: this table has no figure");
}

static int number_of(const char *name)
{
    const char *s = getenv(name);
    int64_t v = 0;
    return s && opt_int(s, &v) && v > 0 && v <= MOST_COLS ? (int)v : 0;
}

static bool colours(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

/* Returns the size of the terminal. One line is reserved for the shell prompt. */
static struct figure_screen screen_of(void)
{
    struct figure_screen s = {number_of("COLUMNS"), number_of("LINES"), !colours()};
    int columns, rows;
    terminal_size(STDOUT_FILENO, &columns, &rows);
    if (!s.cols && columns > 0)
        s.cols = columns < MOST_COLS ? columns : MOST_COLS;
    if (!s.rows && rows > 1)
        s.rows = rows - 1;
    s.cols = s.cols ? s.cols : COLS;
    return s;
}

int preview_draw(const struct figure_options *look, const struct figure *f, const struct table *t,
                 struct kvf_diag *d)
{
    struct buf out = {0};
    const struct figure_screen screen = screen_of();
    int err = figure_preview(f, t, &look->style, &screen, &out, d);
    if (!err && out.len)
        fwrite(out.data, 1, out.len, stdout);
    buf_finish(&out);
    if (!err)
        err = caption_print(look, f, t, d);
    return err;
}
