/* draw_table.c - a figure of a saved table: draw_table TABLE FIGURE OUT [STYLE [WxH [DPI]]] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/table_read.h"
#include "render/figure.h"

int main(int argc, char **argv)
{
    struct kvf_diag d = {""};
    /* A font that is named draws the same wherever others are installed, too. */
    struct figure_style s = {.vmin = NAN, .vmax = NAN, .font = "DejaVu Sans"};
    struct table *t = NULL;
    if (argc < 4 || !figure_find(argv[2]))
        return 3;
    if (argc > 4 && *argv[4])
        s.option = argv[4];
    if (argc > 5 && *argv[5] && sscanf(argv[5], "%lfx%lf", &s.width_mm, &s.height_mm) != 2)
        return 3;
    if (argc > 6)
        s.dpi = atoi(argv[6]);
    int err = table_read(argv[1], figure_reads_text, &t, &d);
    if (!err)
        err = figure_write(figure_find(argv[2]), t, &s, argv[3], &d);
    if (err)
        fprintf(stderr, "%s\n", d.text);
    table_destroy(t);
    return err == KVF_OK ? 0 : err == KVF_E_ARG ? 2 : 1;
}
