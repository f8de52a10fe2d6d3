/* jinja_lex.h - private to engine/model: splits the text of a chat template into tokens.
 *
 * White space is removed as jinja2 does with trim_blocks and lstrip_blocks, the options of the
 * transformers library. One line feed at the end of the template is removed.
 */
#pragma once

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

/* Encodes an operator of one or two characters. */
#define JINJA_OP(a, b) ((a) << 8 | (b))

/* A token of the template. */
struct jinja_token {
    enum jinja_token_type type;
    int line;
    const struct jinja_text *text;
    int64_t number;
    double real;
    int op;
};

/* The state of the lexer. */
struct jinja_lexer {
    struct jinja *j;
    const char *s;
    size_t n, at;
    int line, brackets;
    char begins;      /* '%' or '{' if a tag begins here; otherwise 0 */
    char tag;         /* '%' or '{' inside a tag of this kind; 0 outside tags */
    bool line_begins; /* the next character is the first of its line */
};

/* Starts the lexer. text must outlive the lexer's struct jinja. */
void jinja_lex_init(struct jinja_lexer *l, struct jinja *j, const char *text, size_t n);
/* Returns the next token; JINJA_T_END after the last one or an error. */
struct jinja_token jinja_lex(struct jinja_lexer *l);

/* Returns the bytes of white space at the start of s, as Python's str.isspace defines it; 0 if
 * there is none. */
size_t jinja_space(const char *s, size_t n);
/* Returns the number of bytes without white space at the end. */
size_t jinja_rstrip(const char *s, size_t n);
