/* draw_table.c - draws a figure of a saved table:
 *   draw_table TABLE FIGURE OUT [STYLE [WxH [DPI [KEY=VALUE...]]]]
 *
 * With only W, the figure chooses the height.  Keys are title, cmap, font, vmin and vmax.
 *
 * Without arguments it draws many figures in one process.  Each line of standard input has these
 * arguments, separated by tabs.  The answer is a line with the exit status and the length of the
 * message in bytes, followed by the message. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/table_read.h"
#include "render/figure.h"

enum { POSITIONS = 6, MOST = 12, USAGE = 3, LINE = 8192 };

/* Applies KEY=VALUE. Returns false for an unknown key. */
static bool set(struct figure_style *s, char *word)
{
    char *value = strchr(word, '=');
    if (!value)
        return false;
    *value++ = 0;
    const struct {
        const char *key, **text;
        double *number;
    } keys[] = {{"title", &s->title, NULL},
                {"cmap", &s->cmap, NULL},
                {"font", &s->font, NULL},
                {"vmin", NULL, &s->vmin},
                {"vmax", NULL, &s->vmax}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i].key, word) != 0)
            continue;
        if (keys[i].text)
            *keys[i].text = value;
        else
            *keys[i].number = atof(value);
        return true;
    }
    return false;
}

/* Draws a figure.  Returns the exit status. */
static int draw(int n, char *const *argument, struct kvf_diag *d)
{
    /* A named font draws equally if other fonts are installed too. */
    struct figure_style s = {.vmin = NAN, .vmax = NAN, .font = "DejaVu Sans"};
    struct table *t = NULL;
    if (n < 3 || !figure_find(argument[1]))
        return USAGE;
    if (n > 3 && *argument[3])
        s.option = argument[3];
    if (n > 4 && *argument[4] && sscanf(argument[4], "%lfx%lf", &s.width_mm, &s.height_mm) < 1)
        return USAGE;
    if (n > 5)
        s.dpi = atoi(argument[5]);
    for (int i = POSITIONS; i < n; i++)
        if (!set(&s, argument[i]))
            return USAGE;
    int err = table_read(argument[0], figure_reads_text, &t, d);
    if (!err)
        err = figure_write(figure_find(argument[1]), t, &s, argument[2], d);
    if (err)
        snprintf(d->text + strlen(d->text), 2, "\n");
    else
        d->text[0] = 0;
    table_destroy(t);
    if (err == KVF_OK)
        return 0;
    return err == KVF_E_ARG ? 2 : 1;
}

static void draw_lines(void)
{
    char line[LINE];
    while (fgets(line, sizeof line, stdin)) {
        struct kvf_diag d = {""};
        char *argument[MOST];
        int n = 0;
        line[strcspn(line, "\n")] = 0;
        for (char *at = line; at && n < MOST; n++) {
            argument[n] = at;
            at = strchr(at, '\t');
            if (at)
                *at++ = 0;
        }
        int status = draw(n, argument, &d);
        printf("%d %zu\n%s", status, strlen(d.text), d.text);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct kvf_diag d = {""};
    if (argc == 1) {
        draw_lines();
        return 0;
    }
    int status = draw(argc - 1, argv + 1, &d);
    fputs(d.text, stderr);
    return status;
}
