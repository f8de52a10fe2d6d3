/* style.h - the keys of --style: what a figure declares, and how their values are read.
 *
 * A figure declares the struct that its functions want filled, and a table of the keys:
 *
 *     struct ghosts_style {
 *         int by, x;
 *     };
 *     static const struct style_key style[] = {
 *         WORD_KEY(struct ghosts_style, by, "layer", "what a line is of", "all", "head", "layer"),
 *         WORD_KEY(struct ghosts_style, x, "away", "what goes across", "away", "age"),
 *         {.type = KEY_END},
 *     };
 *
 * figure.c fills the struct before it calls the figure's functions, which find it as s->own.  The
 * same table makes the sentences of errors and what `kvfate figures --json` says. */
#ifndef KVF_RENDER_STYLE_H
#define KVF_RENDER_STYLE_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "base/buf.h"

enum style_type {
    KEY_END = 0, /* closes the table */
    KEY_WORD,    /* int            the place of the word in `words` */
    KEY_TEXT,    /* const char *   any text; borrowed for as long as the figure is drawn */
    KEY_COUNT,   /* int64_t        a whole number within [min, max] */
    KEY_REAL,    /* double         within [min, max] */
};

struct style_key {
    enum style_type type;
    const char *name;
    size_t offset;            /* of the value in the figure's struct */
    const char *arg;          /* name of the value for people: "N"; NULL: words */
    const char *help;         /* one line, without default, range and words */
    const char *standard;     /* the default as typed; NULL: none, the value stays zero */
    double min, max;          /* of numbers */
    const char *const *words; /* of KEY_WORD; ends with NULL */
};

/* The rows of a table of keys: `field` of the struct `of` has the name of the key. */
#define WORD_KEY(of, field, usual, about, ...)                                                     \
    {                                                                                              \
        .type = KEY_WORD, .name = #field, .offset = offsetof(of, field), .help = about,            \
        .standard = usual, .words = (const char *const[])                                          \
        {                                                                                          \
            __VA_ARGS__, NULL                                                                      \
        }                                                                                          \
    }
#define TEXT_KEY(of, field, value, usual, about)                                                   \
    {                                                                                              \
        .type = KEY_TEXT, .name = #field, .offset = offsetof(of, field), .arg = value,             \
        .help = about, .standard = usual                                                           \
    }
#define COUNT_KEY(of, field, usual, least, most, about)                                            \
    {                                                                                              \
        .type = KEY_COUNT, .name = #field, .offset = offsetof(of, field), .arg = "N",              \
        .help = about, .standard = usual, .min = least, .max = most                                \
    }
#define REAL_KEY(of, field, usual, least, most, about)                                             \
    {                                                                                              \
        .type = KEY_REAL, .name = #field, .offset = offsetof(of, field), .arg = "X",               \
        .help = about, .standard = usual, .min = least, .max = most                                \
    }

/* Fills ret, a zeroed struct, with the defaults and then with "key=value,...".
 *
 * figure   its name, for the sentence
 * keys     NULL: the figure has none
 * option   NULL: the defaults alone
 * text     keeps the values of texts: ret points into it until the caller finishes it
 *
 * KVF_OK, KVF_E_NOMEM, or KVF_E_ARG with a sentence that says what the figure knows and which
 * key or word was likely meant. */
int style_read(const char *figure, const struct style_key *keys, const char *option, void *ret,
               struct buf *text, struct kvf_diag *d);

/* Appends a JSON array with an object for each key: "name", "type" and "help", and where they
 * exist "arg", "words", "default", "min" and "max". */
void style_json(const struct style_key *keys, struct buf *out);

/* "C:D" or "C:" of a key of steps into [*from, *to); *to is INT64_MAX where there is no end.
 * NULL leaves both.  KVF_OK, or KVF_E_ARG with a sentence. */
int style_steps(const char *value, int64_t *from, int64_t *to, struct kvf_diag *d);

#endif
