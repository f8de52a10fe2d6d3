/* style.h - the keys of --style that a figure declares.
 *
 * A figure declares a struct for its functions and typed options (base/opt.h) that fill it.  The
 * names of the options are the keys:
 *
 *     struct ghosts_style {
 *         int by, x;
 *     };
 *     const struct figure fig_ghosts = {
 *         STYLE(struct ghosts_style,
 *               WORD_KEY(struct ghosts_style, by, "layer", "unit of a line", "all", "head"),
 *               WORD_KEY(struct ghosts_style, x, "away", "what goes across", "away", "age")),
 *         ...
 *     };
 *
 * figure.c fills the struct before it calls the figure's functions, which read it as s->own.  Error
 * messages and `kvfate list figures --json` use the same table. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/opt.h"

/* Members of a struct figure: the keys that fill a struct of type `of`. */
#define STYLE(of, ...)                                                                             \
    .style = (const struct opt[]){__VA_ARGS__, {.type = OPT_END}}, .style_bytes = sizeof(of)
/* Macros for the keys.  `field` of the struct `of` has the name of the key.  `usual` is the default
 * of a word.  Numbers and texts end with .standard = "..." (opt.h). If the value stays zero or NULL
 * by default, they end with .absent = "...", which describes that case. */
#define STYLE_KEY(kind, of, field, about)                                                          \
    .type = kind, .name = #field, .offset = offsetof(of, field), .help = about
/* int: the index of a word in a list that ends with NULL, or in the last arguments. */
#define LIST_KEY(of, field, usual, about, list)                                                    \
    {                                                                                              \
        STYLE_KEY(OPT_WORD, of, field, about), .arg = "WORD", .standard = usual, .words = list     \
    }
#define WORD_KEY(of, field, usual, about, ...)                                                     \
    LIST_KEY(of, field, usual, about, ((const char *const[]){__VA_ARGS__, NULL}))
/* const char *: any text but "", borrowed while the figure is drawn. */
#define TEXT_KEY(of, field, value, about, ...)                                                     \
    {                                                                                              \
        STYLE_KEY(OPT_STR, of, field, about), .arg = value, __VA_ARGS__                            \
    }
/* int64_t and double, within [least, most]. */
#define COUNT_KEY(of, field, least, most, about, ...)                                              \
    {                                                                                              \
        STYLE_KEY(OPT_INT, of, field, about), .arg = "N", .min = least, .max = most, __VA_ARGS__   \
    }
#define REAL_KEY(of, field, least, most, about, ...)                                               \
    {                                                                                              \
        STYLE_KEY(OPT_REAL, of, field, about), .arg = "X", .min = least, .max = most, __VA_ARGS__  \
    }

/* The table of a figure without keys. */
extern const struct opt style_none[];

/* Fills ret, a zeroed struct, with the defaults and then with "key=value,...".
 *
 *   figure   the figure's name, for messages
 *   option   NULL: only the defaults
 *   text     stores the values that are texts: ret points into it until the caller finishes it
 *
 * Returns KVF_OK, KVF_E_NOMEM, or KVF_E_ARG with a message that lists the known keys or words and
 * suggests the nearest one. */
int style_read(const char *figure, const struct opt *keys, const char *option, void *ret,
               struct buf *text, struct kvf_diag *d);

/* Parses "C:D", "C:" or ":D" of a key of steps of a table with the steps 0 to `last` into
 * [*from, *to).  value NULL leaves both unchanged.  Returns KVF_OK, or KVF_E_ARG with a message. */
int style_steps(const char *value, int64_t last, int64_t *from, int64_t *to, struct kvf_diag *d);
