/* head_kind.c - classifies a head by the rules of head_kind.h. */
#include <math.h>

#include "analyzers/head_kind.h"

const char *head_kind_name(enum head_kind k)
{
    static const char *const names[N_HEAD_KINDS] = {
        "sliding-window", "several-windows", "sink",   "a-shape", "context-switch", "gist",
        "number",         "instruction",     "filler", "mixed",   "unknown"};
    return names[k];
}

static double above(double x, double from, double to)
{
    return isnan(x) ? 0 : fmin(1, fmax(0, (x - from) / (to - from)));
}

static double below(double x, double from, double to) /* 1 up to from, 0 from to on */
{
    return isnan(x) ? 0 : 1 - above(x, from, to);
}

static double least(double a, double b, double c)
{
    return fmin(a, fmin(b, c));
}

static void judge(const double *f, double *score)
{
    double recent = above(f[SIGNATURE_RECENT], .4, .7);
    double some = above(f[SIGNATURE_SINK], .1, .3); /* a sink next to another kind */
    double saw = fmin(above(f[SIGNATURE_RUNS], .1, .5), above(f[SIGNATURE_RISES], .6, 1.8));
    double two = least(above(f[SIGNATURE_APART], 1, 1.6), above(f[SIGNATURE_LESSER], .05, .15),
                       above(f[SIGNATURE_TWO], .68, .78));
    double window = least(recent, below(f[SIGNATURE_SPREAD], .8, 1.6), 1 - saw);
    window = fmin(window, 1 - two);
    score[HEAD_WINDOW] = fmin(window, 1 - some);
    score[HEAD_A_SHAPE] = fmin(window, some);
    score[HEAD_CONTEXT] = fmin(recent, saw);
    score[HEAD_WINDOWS] = least(above(f[SIGNATURE_RECENT], .1, .4), two, 1 - saw);
    score[HEAD_GIST] = above(f[SIGNATURE_GIST], .2, .5);
    score[HEAD_NUMBER] = above(f[SIGNATURE_NUMBER], .2, .5);
    score[HEAD_FILLER] = above(f[SIGNATURE_FILLER], .2, .5);
    score[HEAD_INSTRUCTION] = above(f[SIGNATURE_PROMPT], .2, .5);
    score[HEAD_SINK] = 0;
    double other = 0, rest = below(f[SIGNATURE_SINK], .9, 1); /* whether there is much else */
    for (int k = 0; k < N_RULES; k++) {
        score[k] = fmin(score[k], rest);
        other = fmax(other, score[k]);
    }
    score[HEAD_SINK] = fmin(above(f[SIGNATURE_SINK], .25, .55), 1 - other);
}

enum head_kind head_kind_of(const struct signature *s, double ret_scores[N_RULES],
                            double *ret_score)
{
    int best = 0;
    for (int k = 0; k < N_RULES; k++)
        ret_scores[k] = NAN;
    *ret_score = NAN;
    if (isnan(s->f[SIGNATURE_SINK]))
        return HEAD_UNKNOWN;
    judge(s->f, ret_scores);
    for (int k = 1; k < N_RULES; k++)
        if (ret_scores[k] > ret_scores[best])
            best = k;
    *ret_score = ret_scores[best] >= .5 ? ret_scores[best] : 1 - ret_scores[best];
    return ret_scores[best] >= .5 ? (enum head_kind)best : HEAD_MIXED;
}
