/* scoped.h - variables that are closed at the end of the block that declares them:
 *
 *     OWNED(kvf_close) struct kvf_trace *t = NULL;    calls kvf_close(t)
 *     SCOPED(buf_finish) struct buf text = {0};       calls buf_finish(&text)
 *
 * Variables are closed in the reverse order of their declarations. */
#ifndef KVF_TESTS_SCOPED_H
#define KVF_TESTS_SCOPED_H

#include <stdlib.h>
#include <string.h>
#include "tests/scoped.h"

#define SCOPED(f) __attribute__((cleanup(f)))
#define OWNED(f) __attribute__((cleanup(f##_owned)))

/* Declares f for OWNED(f). f closes an object of this type and accepts NULL. */
#define CLOSES(f, type)                                                                            \
    type;                                                                                          \
    void f(type *);                                                                                \
    static inline void f##_owned(type **p)                                                         \
    {                                                                                              \
        f(*p);                                                                                     \
    }

CLOSES(cache_destroy, struct cache)
CLOSES(canvas_destroy, struct canvas)
CLOSES(classes_close, struct classes)
CLOSES(corpus_destroy, struct corpus)
CLOSES(corpus_document_destroy, struct corpus_document)
CLOSES(effect_close, struct effect_run)
CLOSES(engine_close, struct engine)
CLOSES(gates_close, struct gates)
CLOSES(gguf_close, struct gguf)
CLOSES(gpu_close, struct gpu)
CLOSES(json_free, struct json)
CLOSES(kvf_close, struct kvf_trace)
CLOSES(kvf_writer_abandon, struct kvf_writer)
CLOSES(method_state_destroy, struct method_state)
CLOSES(net_destroy, struct net)
CLOSES(packs_close, struct packs)
CLOSES(par_destroy, struct par)
CLOSES(paragraph_destroy, struct paragraph)
CLOSES(part_free, struct part)
CLOSES(pen_destroy, struct pen)
CLOSES(plan_close, struct plan)
CLOSES(pretok_destroy, struct pretok)
CLOSES(session_destroy, struct session)
CLOSES(table_destroy, struct table)
CLOSES(tensor_file_close, struct tensor_file)
CLOSES(tokenizer_destroy, struct tokenizer)
CLOSES(where_free, struct where)

/* The memory is that of any pointer, so that the argument is not a void **. */
static inline void free_owned(void *p)
{
    void *memory;
    memcpy(&memory, p, sizeof memory);
    free(memory);
}

void mem_free(void *);
static inline void mem_free_owned(void *p)
{
    void *memory;
    memcpy(&memory, p, sizeof memory);
    mem_free(memory);
}

#endif
