/* student.h - a tiny trainable model with the data that a pass needs. */
#ifndef KVF_TESTS_STUDENT_H
#define KVF_TESTS_STUDENT_H

#include "engine/train/pass.h"
#include "engine/train/trainable.h"
#include "tests/suite.h"

struct student {
    struct engine *e;
    struct frozen teacher;
    struct trainable *tuned;
    struct pass *pass; /* for the requested number of tokens, with the next-token loss */
};

static inline void student_open(struct student *s, const char *name, int threads, int tokens,
                                double temperature)
{
    char path[4096];
    struct kvf_diag d = {""};
    const struct engine_options eo = {
        .exact = true, .n_threads = threads, .cpu_flags = cpu_flags_detect()};
    struct pass_options po = {.quality = {[QUALITY_NTP] = 1}, .temperature = temperature};
    snprintf(path, sizeof path, "%s/%s", getenv("KVF_TRAIN"), name);
    cr_assert(zero(int, engine_open(path, &eo, &s->e, &d)), "%s", d.text);
    const struct model_config *m = &s->e->config;
    struct compute c = {s->e->kernels, s->e->pool};
    bool tied = !gguf_find(s->e->gguf, "output.weight");
    cr_assert(zero(int, frozen_build(&c, m, s->e->weights, &s->teacher, &d)));
    cr_assert(zero(int, trainable_create(&c, m, s->e->weights, tied, &s->tuned, &d)));
    cr_assert(zero(int, pass_create(&c, &s->teacher, NULL, &po, tokens, &s->pass)));
    pass_tune(s->pass, s->tuned, NULL);
}

static inline void student_close(struct student *s)
{
    pass_destroy(s->pass);
    trainable_destroy(s->tuned);
    frozen_finish(&s->teacher);
    engine_close(s->e);
}

#endif
