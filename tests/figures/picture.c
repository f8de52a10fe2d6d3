/* picture.c - draws figures as SVG and reads their paths. */
#include <fcntl.h>

#include "tests/figures/picture.h"
#include "tests/files.h"

static void parse_path(char *d, struct path *p)
{
    double v[6];
    for (char *s = strtok(d, " "); s; s = strtok(NULL, " ")) {
        int many = *s == 'C' ? 6 : *s == 'M' || *s == 'L' ? 2 : 0;
        p->closed |= *s == 'Z';
        if (*s == 'M' && p->closed)
            return; /* the point at which cairo ends */
        for (int i = 0; i < many; i++)
            v[i] = strtod(strtok(NULL, " "), NULL);
        if (many && p->n < MOST_POINTS) {
            p->xy[2 * p->n] = v[many - 2];
            p->xy[2 * p->n++ + 1] = v[many - 1];
        }
    }
}

static void read_picture(const char *path)
{
    size_t n;
    OWNED(mem_free) char *text = read_whole(path, &n);
    for (int i = 0; i < pic.n; i++)
        free(pic.path[i].xy);
    pic.n = pic.n_frames = 0;
    for (char *s = text, *end; (s = strstr(s, "<path ")); s = end) {
        struct path p = {.xy = calloc(2 * MOST_POINTS, sizeof *p.xy)};
        end = strchr(s, '>');
        *end++ = 0;
        char *width = strstr(s, "stroke-width:"), *d = strstr(s, " d=\"");
        p.width = width ? strtod(width + 13, NULL) : 0;
        bool mm = strstr(s, "transform=") != NULL; /* areas are in points */
        *strchr(d + 4, '"') = 0;
        parse_path(d + 4, &p);
        for (int i = 0; !mm && i < 2 * p.n; i++)
            p.xy[i] *= 25.4 / 72;
        cr_assert(pic.n < MOST_PATHS);
        pic.path[pic.n] = p;
        if (p.closed && p.n == 4 && fabs(p.width - .18) < 1e-6)
            pic.frame[pic.n_frames++] = &pic.path[pic.n];
        pic.n++;
    }
}

struct picture pic;
double vmax = NAN;

int write_figure(const char *name, const struct table *t, const char *option, const char *ext,
                 char path[64], struct kvf_diag *d)
{
    struct figure_style s = {.vmin = NAN, .vmax = vmax, .option = option};
    const struct figure *f = figure_find(name);
    cr_assert(f != NULL, "no figure %s", name);
    snprintf(path, 64, "/tmp/kvfate-curves-XXXXXX%s", ext);
    int fd = mkstemps(path, (int)strlen(ext));
    cr_assert(fd >= 0);
    close(fd);
    return figure_write(f, t, &s, path, d);
}

void draw(const char *name, const struct table *t, const char *option)
{
    char path[64];
    struct kvf_diag d = {""};
    cr_assert(eq(int, table_err(t), KVF_OK));
    cr_assert(eq(int, write_figure(name, t, option, ".svg", path, &d), KVF_OK), "%s %s: %s", name,
              option ? option : "", d.text);
    read_picture(path);
    unlink(path);
}

static double share_of(double v, double lo, double hi, bool logarithmic)
{
    return logarithmic ? log(v / lo) / log(hi / lo) : (v - lo) / (hi - lo);
}

static double away(const double *p, const double *a, const double *b)
{
    double dx = b[0] - a[0], dy = b[1] - a[1], length = dx * dx + dy * dy;
    double f = length > 0 ? ((p[0] - a[0]) * dx + (p[1] - a[1]) * dy) / length : 0;
    f = f < 0 ? 0 : f > 1 ? 1 : f;
    return hypot(p[0] - a[0] - f * dx, p[1] - a[1] - f * dy);
}

/* Returns true if the path matches.  cairo omits points inside straight lines: the wanted points
 * must be on the path, and every point of the path is one of them, in order, from the first to the
 * last. */
static bool same_path(const struct path *p, const double *want, int n)
{
    int k = 0;
    if (p->n < 2 || p->n > n)
        return false;
    for (int i = 0; i < n; i++) {
        const double *w = want + 2 * i;
        if (k < p->n && hypot(p->xy[2 * k] - w[0], p->xy[2 * k + 1] - w[1]) < .02)
            k++;
        else if (k == 0 || k == p->n || away(w, p->xy + 2 * k - 2, p->xy + 2 * k) > .02)
            return k == p->n && i > 0 && away(w, p->xy + 2 * k - 2, p->xy + 2 * k - 2) < .02;
    }
    return k == p->n;
}

bool has(int k, const struct axes *a, const double *x, const double *y, int n, bool line)
{
    const double *f = pic.frame[k]->xy; /* left top, right top, right bottom, left bottom */
    double want[2 * MOST_POINTS];
    for (int j = 0; j < n; j++) {
        want[2 * j] = f[0] + share_of(x[j], a->x0, a->x1, a->log_x) * (f[2] - f[0]);
        want[2 * j + 1] = f[5] - share_of(y[j], a->y0, a->y1, a->log_y) * (f[5] - f[1]);
    }
    for (int i = 0; i < pic.n; i++)
        if ((pic.path[i].width > 0) == line && same_path(&pic.path[i], want, n))
            return true;
    return false;
}

bool has_ring(int k, const struct axes *a, double x, double y, double radius)
{
    const double *f = pic.frame[k]->xy;
    double at = f[0] + share_of(x, a->x0, a->x1, a->log_x) * (f[2] - f[0]);
    double up = f[5] - share_of(y, a->y0, a->y1, a->log_y) * (f[5] - f[1]);
    for (int i = 0; i < pic.n; i++)
        if ((pic.path[i].n == 3 || pic.path[i].n == 5)
            && fabs(pic.path[i].xy[0] - at - radius) < .02 && fabs(pic.path[i].xy[1] - up) < .02)
            return true;
    return false;
}
