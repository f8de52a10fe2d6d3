/* jinja_lex.h - the text of a chat template as tokens.  Private to engine/model.
 *
 * White space is taken away as jinja2 does with trim_blocks and lstrip_blocks, the options that
 * the transformers library sets; one line feed at the end of the template goes. */
#ifndef KVF_ENGINE_JINJA_LEX_H
#define KVF_ENGINE_JINJA_LEX_H

#include "engine/model/jinja_value.h"

enum jinja_token_type {
    JINJA_T_END,
    JINJA_T_DATA,      /* text */
    JINJA_T_BLOCK,     /* {% */
    JINJA_T_BLOCK_END, /* %} */
    JINJA_T_PRINT,     /* {{ */
    JINJA_T_PRINT_END, /* }} */
    JINJA_T_NAME,      /* text */
    JINJA_T_STRING,    /* text, escapes resolved */
    JINJA_T_INT,       /* number */
    JINJA_T_FLOAT,     /* real */
    JINJA_T_OP,        /* op */
};

/* An operator of one or two signs. */
#define JINJA_OP(a, b) ((a) << 8 | (b))

struct jinja_token {
    enum jinja_token_type type;
    int line;
    const struct jinja_text *text;
    int64_t number;
    double real;
    int op;
};

struct jinja_lexer {
    struct jinja *j;
    const char *s;
    size_t n, at;
    int line, brackets;
    char begins;      /* '%', '{': a tag begins here; 0: none does */
    char tag;         /* 0: outside of tags; '%', '{': inside of one */
    bool line_begins; /* what comes stands at the begin of a line */
};

/* text must outlive the lexer's struct jinja. */
void jinja_lex_init(struct jinja_lexer *l, struct jinja *j, const char *text, size_t n);
/* The next token; JINJA_T_END for ever after the last or an error. */
struct jinja_token jinja_lex(struct jinja_lexer *l);

/* Bytes of white space, as Python's str.isspace has it, that s begins with; 0: none. */
size_t jinja_space(const char *s, size_t n);
/* Bytes without the white space at the end. */
size_t jinja_rstrip(const char *s, size_t n);

#endif
