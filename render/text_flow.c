/* text_flow.c - lays out and draws the text of a table of tokens line by line. */
#include "render/text_flow.h"

#include <string.h>

#include "base/mem.h"

/* Returns for every byte if it is bold.  The bytes of a user-perceived character are all bold or
 * all not.  Owned by the caller. */
static unsigned char *weights(const struct text_flow *f, const struct text_source *s)
{
    size_t n = s->bytes.len;
    unsigned char *bold = mem_alloc(n, 1);
    if (!bold)
        return NULL;
    text_characters(s->bytes.data, n, bold);
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && !bold[k]; k++)
            ;
        int64_t row0 = text_source_at(s, i)->row0, row1 = text_source_at(s, k - 1)->row1;
        memset(bold + i, f->bold(f->ctx, row0, row1), k - i);
    }
    return bold;
}

static int lay_out(struct text_flow *f)
{
    const struct text_source *s = &f->source;
    unsigned char *bold = f->bold ? weights(f, s) : NULL;
    int err = f->bold && !bold ? KVF_E_NOMEM
                               : paragraph_create(f->c, s->bytes.data, s->bytes.len, bold, f->pt,
                                                  f->width, s->dir, &f->p);
    mem_free(bold);
    if (err)
        return err;
    int lines = paragraph_lines(f->p);
    f->line = 0;
    f->used = lines > 1 && !s->ended ? lines - 1 : lines; /* the last line may continue */
    return KVF_OK;
}

/* Returns true if the text has emoji outside the basic plane, whose fonts have their own
 * colours. */
static bool has_own_colours(const char *s, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        if ((unsigned char)s[i] == 0xf0 && (unsigned char)s[i + 1] == 0x9f)
            return true;
    return false;
}

/* Returns true if a piece is a space next to the letters of its token. */
static bool is_gap(const struct text_flow *f, const struct text_piece *p)
{
    return f->source.bytes.data[p->from] == ' ';
}

/* Calls `below` with the position of each token of the line. */
static void call_below(const struct text_flow *f, const struct text_piece *piece, int n, double x,
                       double y)
{
    for (int i = 0, next; i < n; i = next) {
        const struct text_unit *u = text_source_at(&f->source, piece[i].from);
        int first = i, last;
        for (next = i + 1; next < n; next++)
            if (text_source_at(&f->source, piece[next].from) != u)
                break;
        last = next - 1;
        while (first < last && is_gap(f, &piece[first]))
            first++;
        while (last > first && is_gap(f, &piece[last]))
            last--;
        f->below(f->ctx, u->row0, u->row1, x + piece[first].x, y,
                 piece[last].x + piece[last].w - piece[first].x);
    }
}

static int draw_line(struct text_flow *f, double x, double y)
{
    const struct text_source *s = &f->source;
    const struct text_piece *piece;
    int n = paragraph_pieces(f->p, f->line, &piece);
    struct text_look *look = n < 0 ? NULL : mem_alloc((size_t)n, sizeof *look);
    if (!look)
        return KVF_E_NOMEM;
    for (int i = 0; i < n; i++) {
        const struct text_unit *a = text_source_at(s, piece[i].from),
                               *b = text_source_at(s, piece[i].to - 1);
        look[i] = f->look(f->ctx, a->row0, b->row1);
        look[i].dot = a->space;
        if (!look[i].filled
            && has_own_colours(s->bytes.data + piece[i].from, piece[i].to - piece[i].from))
            look[i].underlined = true;
    }
    paragraph_draw(f->c, f->p, f->line, x, y, look);
    mem_free(look);
    if (f->below)
        call_below(f, piece, n, x, y);
    return KVF_OK;
}

void text_flow_open(struct text_flow *f, const struct table *t, int64_t row0, int64_t row1)
{
    f->at = 0;
    f->p = NULL;
    text_source_init(&f->source, t, row0, row1);
}

void text_flow_close(struct text_flow *f)
{
    paragraph_destroy(f->p);
    text_source_finish(&f->source);
}

/* Ends the paragraph after all its lines are drawn. */
static void drop(struct text_flow *f)
{
    size_t n = f->used < paragraph_lines(f->p) ? paragraph_start(f->p, f->used)
                                               : f->source.bytes.len;
    text_source_drop(&f->source, n);
    paragraph_destroy(f->p);
    f->p = NULL;
}

int text_flow_run(struct text_flow *f, int64_t to, bool draw, double x, double y, double pitch)
{
    int err = KVF_OK;
    int64_t first = f->at;
    while (!err && f->at < to && (f->p || text_source_fill(&f->source))) {
        if (!f->p)
            err = lay_out(f);
        for (; !err && f->line < f->used && f->at < to; f->line++, f->at++)
            if (draw)
                err = draw_line(f, x, y + (double)(f->at - first) * pitch);
        if (!err && f->line == f->used)
            drop(f);
    }
    return err ? err : f->source.err;
}
