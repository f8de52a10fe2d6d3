/* canvas_text.c - shapes, breaks and draws paragraphs of running text with pango. */
#include <pango/pangocairo.h>
#include <string.h>

#include "base/mem.h"
#include "render/canvas_impl.h"
#include "render/canvas_text.h"
#include "render/marks.h"

/* The position of a piece: glyphs [a, b) of a run. */
struct glyphs {
    PangoLayoutRun *run;
    int a, b;
};

struct paragraph {
    PangoLayout *layout;
    double pt, em; /* em: mm */
    enum text_direction dir;
    struct text_piece *piece; /* of the line last requested */
    struct glyphs *glyphs;    /* one per piece */
    int room;
};

/* Returns true for characters in the Unicode blocks of right-to-left scripts. */
static bool is_leftwards(gunichar c)
{
    return (c >= 0x590 && c < 0x900) || (c >= 0xfb1d && c < 0xfe00) || (c >= 0xfe70 && c < 0xff00)
           || (c >= 0x10800 && c < 0x11000) || (c >= 0x1e800 && c < 0x1f000);
}

enum text_direction text_direction_of(const char *s, size_t n)
{
    bool apart = false;
    for (const char *p = s; p < s + n; p = g_utf8_next_char(p)) {
        gunichar letter = g_utf8_get_char(p);
        if (letter == 0x2066 || letter == 0x2069)
            apart = letter == 0x2066;
        if (!apart && g_unichar_isalpha(letter))
            return is_leftwards(letter) ? TEXT_RTL : TEXT_LTR;
    }
    return TEXT_NEUTRAL;
}

void text_characters(const char *s, size_t n, unsigned char *start)
{
    int k = (int)g_utf8_strlen(s, (gssize)n) + 1;
    PangoLogAttr *attr = mem_alloc((size_t)k, sizeof *attr);
    if (attr)
        pango_get_log_attrs(s, (int)n, -1, NULL, attr, k);
    for (size_t i = 0, c = 0; i < n; i++) {
        bool first = ((unsigned char)s[i] & 0xc0) != 0x80;
        start[i] = first && (!attr || attr[c].is_cursor_position);
        c += first;
    }
    mem_free(attr);
}

/* ---- layout */

static void add(PangoAttrList *list, PangoAttribute *a, size_t from, size_t to)
{
    a->start_index = (guint)from;
    a->end_index = (guint)to;
    pango_attr_list_insert(list, a);
}

/* Turns off decorative ligatures, which would join letters of two tokens.  Ligatures that a script
 * requires stay on. */
static PangoAttrList *attributes(size_t n, const unsigned char *bold)
{
    PangoAttrList *list = pango_attr_list_new();
    add(list, pango_attr_font_features_new("liga=0, clig=0, dlig=0"), 0, n);
    add(list, pango_attr_insert_hyphens_new(FALSE), 0, n);
    for (size_t i = 0, k; bold && i < n; i = k) {
        for (k = i + 1; k < n && bold[k] == bold[i]; k++)
            ;
        if (bold[i])
            add(list, pango_attr_weight_new(PANGO_WEIGHT_BOLD), i, k);
    }
    return list;
}

/* Creates a context per paragraph, because the direction of a paragraph is a property of the
 * context. */
static PangoLayout *layout_of(const struct canvas_inner *in, enum text_direction dir)
{
    PangoLayout *layout = pango_cairo_create_layout(in->cr);
    PangoContext *ctx = pango_layout_get_context(layout);
    pango_cairo_context_set_font_options(ctx, pango_cairo_context_get_font_options(in->context));
    pango_context_set_round_glyph_positions(ctx, FALSE);
    pango_context_set_base_dir(ctx, dir == TEXT_RTL ? PANGO_DIRECTION_RTL : PANGO_DIRECTION_LTR);
    pango_layout_set_auto_dir(layout, FALSE);
    pango_layout_set_single_paragraph_mode(layout, TRUE);
    pango_layout_set_wrap(layout, PANGO_WRAP_WORD_CHAR);
    return layout;
}

int paragraph_create(struct canvas *c, const char *s, size_t n, const unsigned char *bold,
                     double pt, double width, enum text_direction dir, struct paragraph **ret)
{
    struct canvas_inner in = canvas_inner(c);
    struct paragraph *p = MEM_NEW(struct paragraph, 1);
    if (!p)
        return KVF_E_NOMEM;
    PangoFontDescription *font = pango_font_description_copy(in.font);
    PangoAttrList *list = attributes(n, in.cells ? NULL : bold);
    p->pt = pt;
    p->em = pt * 25.4 / 72;
    p->dir = dir;
    if (in.cells) { /* one character per cell: this font advances by 1233 of 2048 units */
        pango_font_description_set_family(font, "DejaVu Sans Mono, Noto Sans CJK SC");
        p->em = ANSI_PIXEL * 2048 / 1233;
        p->pt = p->em * 72 / 25.4;
    }
    pango_font_description_set_absolute_size(font, p->em * PANGO_SCALE);
    pango_font_description_set_weight(font, PANGO_WEIGHT_NORMAL);
    p->layout = layout_of(&in, dir);
    pango_layout_set_font_description(p->layout, font);
    pango_layout_set_width(p->layout, (int)(width * PANGO_SCALE));
    pango_layout_set_text(p->layout, s, (int)n);
    pango_layout_set_attributes(p->layout, list);
    pango_attr_list_unref(list);
    pango_font_description_free(font);
    if (in.boxes && pango_layout_get_unknown_glyphs_count(p->layout) > 0)
        *in.boxes = true;
    *ret = p;
    return KVF_OK;
}

void paragraph_destroy(struct paragraph *p)
{
    if (!p)
        return;
    g_object_unref(p->layout);
    mem_free_all(p->piece, p->glyphs, p);
}

int paragraph_lines(const struct paragraph *p)
{
    return pango_layout_get_line_count(p->layout);
}

size_t paragraph_start(const struct paragraph *p, int line)
{
    return (size_t)pango_layout_get_line_readonly(p->layout, line)->start_index;
}

/* ---- pieces */

/* Returns the left edge of a line.  Lines of a right-to-left paragraph end at the right edge. */
static double left_of(const struct paragraph *p, PangoLayoutLine *l)
{
    PangoRectangle box;
    if (p->dir != TEXT_RTL)
        return 0;
    pango_layout_line_get_extents(l, NULL, &box);
    return (double)(pango_layout_get_width(p->layout) - box.width) / PANGO_SCALE;
}

/* Finds glyphs [*a, *b) of the current cluster. */
static void glyphs_of(const PangoGlyphItemIter *it, int *a, int *b)
{
    bool rightwards = it->start_glyph <= it->end_glyph;
    *a = rightwards ? it->start_glyph : it->end_glyph + 1;
    *b = rightwards ? it->end_glyph : it->start_glyph + 1;
}

static double width_of(const PangoGlyphString *g, int a, int b)
{
    double w = 0;
    for (int k = a; k < b; k++)
        w += g->glyphs[k].geometry.width;
    return w / PANGO_SCALE;
}

static int count_glyphs(PangoLayoutLine *l)
{
    int n = 0;
    for (GSList *run = l->runs; run; run = run->next)
        n += ((PangoLayoutRun *)run->data)->glyphs->num_glyphs;
    return n;
}

static void swap(struct paragraph *p, int i, int k)
{
    struct text_piece piece = p->piece[i];
    struct glyphs glyphs = p->glyphs[i];
    p->piece[i] = p->piece[k];
    p->glyphs[i] = p->glyphs[k];
    p->piece[k] = piece;
    p->glyphs[k] = glyphs;
}

/* Appends the pieces of a run that begins at x.  Returns the number of pieces so far. */
static int add_run(struct paragraph *p, PangoLayoutRun *run, double x, int n)
{
    const char *text = pango_layout_get_text(p->layout);
    PangoGlyphItemIter it;
    int a, b, first = n;
    for (gboolean more = pango_glyph_item_iter_init_start(&it, run, text); more;
         more = pango_glyph_item_iter_next_cluster(&it), n++) {
        glyphs_of(&it, &a, &b);
        p->glyphs[n] = (struct glyphs){run, a, b};
        p->piece[n] = (struct text_piece){(size_t)it.start_index, (size_t)it.end_index,
                                          x + width_of(run->glyphs, 0, a),
                                          width_of(run->glyphs, a, b)};
    }
    if (run->item->analysis.level % 2) /* clusters are in text order */
        for (int i = first, k = n - 1; i < k; i++, k--)
            swap(p, i, k);
    return n;
}

static int make_room(struct paragraph *p, int need)
{
    if (need <= p->room)
        return KVF_OK;
    mem_free_all(p->piece, p->glyphs);
    p->piece = mem_alloc((size_t)need, sizeof *p->piece);
    p->glyphs = mem_alloc((size_t)need, sizeof *p->glyphs);
    p->room = p->piece && p->glyphs ? need : 0;
    return p->room ? KVF_OK : KVF_E_NOMEM;
}

int paragraph_pieces(struct paragraph *p, int line, const struct text_piece **ret)
{
    PangoLayoutLine *l = pango_layout_get_line_readonly(p->layout, line);
    int n = 0;
    if (make_room(p, count_glyphs(l)) != KVF_OK)
        return -1;
    double x = left_of(p, l);
    for (GSList *at = l->runs; at; at = at->next) {
        PangoLayoutRun *run = at->data;
        n = add_run(p, run, x, n);
        x += width_of(run->glyphs, 0, run->glyphs->num_glyphs);
    }
    *ret = p->piece;
    return n;
}

/* ---- drawing */

static bool same(struct rgb a, struct rgb b)
{
    return a.r == b.r && a.g == b.g && a.b == b.b;
}

static double end_of(const struct text_piece *piece)
{
    return piece->x + piece->w;
}

static const struct rgb coarse_hatch = {0.75, 0.75, 0.75};

/* Draws the backgrounds of the pieces.  Adjacent pieces of one colour share a rectangle, so that no
 * seam is visible. */
static void draw_fills(struct canvas *c, const struct paragraph *p, int n, double x, double y,
                       const struct text_look *look)
{
    for (int i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && look[k].filled == look[i].filled
                        && look[k].hatched == look[i].hatched && same(look[k].fill, look[i].fill);
             k++)
            ;
        double left = x + p->piece[i].x, w = end_of(&p->piece[k - 1]) - p->piece[i].x;
        bool cells = canvas_inner(c).cells,
             grey = look[i].hatched && cells; /* hatches are too fine for cells */
        if (look[i].filled)
            canvas_cell(c, left, y - p->em, w, 1.34 * p->em, grey ? coarse_hatch : look[i].fill);
        if (look[i].hatched && !cells)
            hatch(c, left, y - p->em, w, 1.34 * p->em);
    }
}

/* Draws the glyphs of the adjacent pieces [i, k) of one run as one item, so that PDF text is not
 * split. */
static void draw_glyphs(struct canvas *c, const struct paragraph *p, int i, int k, double x,
                        double y, struct rgb ink)
{
    const struct canvas_inner inner = canvas_inner(c), *in = &inner;
    PangoLayoutRun *run = p->glyphs[i].run;
    bool leftwards = run->item->analysis.level % 2;
    size_t from = p->piece[leftwards ? k - 1 : i].from, to = p->piece[leftwards ? i : k - 1].to;
    const char *text = pango_layout_get_text(p->layout);
    int a = p->glyphs[i].a, count = p->glyphs[k - 1].b - a, skip = (int)from - run->item->offset;
    int *cluster = mem_alloc((size_t)count, sizeof *cluster);
    if (!cluster) {
        canvas_fail(c, KVF_E_NOMEM);
        return;
    }
    for (int g = 0; g < count; g++)
        cluster[g] = run->glyphs->log_clusters[a + g] - skip;
    PangoItem item = *run->item;
    item.offset = (int)from;
    item.length = (int)(to - from);
    item.num_chars = (int)g_utf8_strlen(text + from, (gssize)(to - from));
    PangoGlyphString part = {
        .num_glyphs = count, .glyphs = run->glyphs->glyphs + a, .log_clusters = cluster};
    PangoGlyphItem drawn = {.item = &item, .glyphs = &part};
    if (in->svg) {
        svg_glyphs(in->svg, in->cr, text, &drawn, x, y, p->pt, ink);
    } else {
        cairo_set_source_rgb(in->cr, ink.r, ink.g, ink.b);
        cairo_move_to(in->cr, x, y);
        pango_cairo_show_glyph_item(in->cr, text, &drawn);
    }
    mem_free(cluster);
}

/* Writes the bytes of a piece into the cells of a terminal. */
static void draw_cells(struct canvas *c, const struct paragraph *p, int i, double x, double y,
                       struct rgb ink)
{
    const char *text = pango_layout_get_text(p->layout);
    struct buf b = {0};
    buf_add(&b, text + p->piece[i].from, p->piece[i].to - p->piece[i].from);
    if (!b.err && b.len)
        canvas_word(c, x, y, b.data, p->pt, 0, ink);
    buf_finish(&b);
}

/* Returns true for a line-break opportunity, which has no glyph. */
static bool has_no_glyph(const struct paragraph *p, int i)
{
    const struct glyphs *g = &p->glyphs[i];
    return g->b - g->a == 1 && p->piece[i].w <= 0
           && g->run->glyphs->glyphs[g->a].glyph == PANGO_GLYPH_EMPTY;
}

static void draw_inks(struct canvas *c, const struct paragraph *p, int n, double x, double y,
                      const struct text_look *look)
{
    const struct canvas_inner in = canvas_inner(c);
    for (int i = 0, k; i < n; i = k) {
        k = i + 1;
        if (has_no_glyph(p, i))
            continue;
        if (in.cells) {
            draw_cells(c, p, i, x + p->piece[i].x, y, look[i].ink);
            continue;
        }
        for (; k < n && same(look[k].ink, look[i].ink) && p->glyphs[k].run == p->glyphs[i].run
               && !has_no_glyph(p, k);
             k++)
            ;
        draw_glyphs(c, p, i, k, x + p->piece[i].x, y, look[i].ink);
    }
}

static void draw_marks(struct canvas *c, const struct paragraph *p, int n, double x, double y,
                       const struct text_look *look)
{
    for (int i = 0; i < n; i++) {
        const struct text_piece *piece = &p->piece[i];
        if (canvas_inner(c).cells) /* a pixel is half a letter */
            continue;
        if (look[i].underlined && piece->w > 0)
            canvas_rect(c, x + piece->x, y + 0.2 * p->em, piece->w, 0.1 * p->em, look[i].ink);
        if (look[i].dot && piece->w > 0)
            canvas_disc(c, x + piece->x + piece->w / 2, y - 0.27 * p->em, 0.075 * p->em, 0,
                        look[i].ink);
    }
}

void paragraph_draw(struct canvas *c, struct paragraph *p, int line, double x, double y,
                    const struct text_look *look)
{
    const struct text_piece *pieces;
    PangoRectangle ink;
    int n = paragraph_pieces(p, line, &pieces);
    if (n < 0) {
        canvas_fail(c, KVF_E_NOMEM);
        return;
    }
    draw_fills(c, p, n, x, y, look);
    pango_layout_line_get_extents(pango_layout_get_line_readonly(p->layout, line), &ink, NULL);
    double above = -(double)ink.y / PANGO_SCALE, below = (double)(ink.y + ink.height) / PANGO_SCALE;
    bool stacked = above > 1.5 * p->em || below > 0.8 * p->em; /* stacked combining marks */
    if (stacked)
        canvas_clip(c, 0, y - 1.5 * p->em, canvas_width(c), 2.3 * p->em);
    draw_inks(c, p, n, x, y, look);
    if (stacked)
        canvas_unclip(c);
    draw_marks(c, p, n, x, y, look);
}
