/* outcome.h - the results of a run, and a test that two runs make the same eviction decisions. */
#ifndef KVF_TESTS_CUDA_OUTCOME_H
#define KVF_TESTS_CUDA_OUTCOME_H

#include "engine/decode/session.h"
#include "tests/cuda/device.h"

/* Opens a model on a CPU or a device. Skips the test if there is no device. */
static inline struct engine *open_on(const char *path, const struct backend *backend, bool exact,
                                     int threads)
{
    const struct engine_options opt = {.exact = exact, .n_threads = threads, .backend = backend};
    struct engine *e = NULL;
    device_needed();
    succeeds(engine_open(path, &opt, &e, &d));
    return e;
}

struct outcome {
    float *logits; /* [1 + STEPS][vocab] */
    size_t n_logits;
    char *trace;
    size_t n_trace;
    long waits; /* maximum number of waits for the device in one step */
    long least; /* minimum number of waits in one step: a step that writes no part of the trace */
    long home;  /* bytes copied to the host in the step with that minimum */
    long told;  /* graph nodes that the last step updated */
    int64_t cuts;
    int peak;
    double reads;
    struct eviction *evictions;
    size_t n_evictions;
};

/* Records every eviction, including those that the trace does not record. */
static inline void on_evict(void *ctx, const struct eviction *e)
{
    struct outcome *o = ctx;
    o->evictions = mem_grow(o->evictions, o->n_evictions, o->n_evictions + 1, sizeof *e);
    o->evictions[o->n_evictions++] = *e;
}

/* Returns the largest finite score or margin. */
static inline float size_of_scores(const struct outcome *o)
{
    float most = 0;
    for (size_t i = 0; i < o->n_evictions; i++) {
        float score = fabsf(o->evictions[i].score), margin = fabsf(o->evictions[i].margin);
        most = isfinite(score) && score > most ? score : most;
        most = isfinite(margin) && margin > most ? margin : most;
    }
    return most;
}

/* The exp of a real device may differ in the last digit, which changes scores. There, scores only
 * need to agree within 1e-5 of `size`. */
static inline bool same_score(float a, float b, float size)
{
    bool near = !EMULATED && fabsf(a - b) <= 1e-5f * size;
    return a == b || near || (isnan(a) && isnan(b));
}

static inline void tell(const char *who, const struct eviction *e)
{
    fprintf(stderr,
            "%s: layer %d head %d position %d leaves at %d, rank %d, tie %d, reason %d, score "
            "%.9g, margin %.9g\n",
            who, e->layer, e->head, (int)e->pos, (int)e->t, (int)e->rank, (int)e->tie,
            (int)e->reason, (double)e->score, (double)e->margin);
}

static inline bool same_evictions(const struct outcome *x, const struct outcome *y)
{
    float size = size_of_scores(x);
    for (size_t i = 0; x->n_evictions == y->n_evictions && i < x->n_evictions; i++) {
        const struct eviction *a = &x->evictions[i], *b = &y->evictions[i];
        if (a->layer == b->layer && a->head == b->head && a->pos == b->pos && a->t == b->t
            && a->reason == b->reason && a->tie == b->tie && a->rank == b->rank
            && same_score(a->score, b->score, size) && same_score(a->margin, b->margin, size))
            continue;
        tell("one", a);
        tell("other", b);
        return false;
    }
    return x->n_evictions == y->n_evictions;
}

#endif
