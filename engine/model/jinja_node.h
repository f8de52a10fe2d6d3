/* jinja_node.h - private to engine/model: a parsed chat template. */
#pragma once

#include "engine/model/jinja_lex.h"

enum jinja_kind {
    /* expressions and the members that they use */
    JINJA_CONST,     /* value */
    JINJA_NAME,      /* text */
    JINJA_MAKE_LIST, /* list: ARG */
    JINJA_MAKE_DICT, /* list: ARG with a the key, b the value */
    JINJA_ATTR,      /* a . text */
    JINJA_ITEM,      /* a [ b ] */
    JINJA_SLICE,     /* a [ b : c : d ]; b, c and d may be NULL */
    JINJA_CALL,      /* a ( list ) */
    JINJA_FILTER,    /* a | text ( list ); a is NULL for the content of a block */
    JINJA_TEST,      /* a is text ( list ) */
    JINJA_NOT,       /* of a */
    JINJA_MINUS,     /* of a */
    JINJA_PLUS,      /* of a */
    JINJA_BINARY,    /* a op b; op is that of a token, or 'a' for and, 'o' for or */
    /* a, then list: ARG with op and a; op is that of a token, or 'i' for in, 'n' for not in */
    JINJA_COMPARE,
    JINJA_CHOOSE, /* b if a else c; c may be NULL */
    JINJA_ARG,    /* a; text: its name, or NULL */
    /* statements */
    JINJA_DATA,   /* text */
    JINJA_PRINT,  /* a */
    JINJA_IF,     /* list: BRANCH */
    JINJA_BRANCH, /* a is the condition, NULL for else; body */
    /* list: NAMEs; a: the iterated value; b: the condition or NULL; body; other: the else part */
    JINJA_FOR,
    JINJA_SET, /* list: NAMEs, or one ATTR of a NAME; a: the value, or NULL for the text of body */
    JINJA_DEFINE,   /* macro with name text; list: ARG with text, and a its default or NULL; body */
    JINJA_SCOPE,    /* body */
    JINJA_FILTERED, /* a: FILTERs applied to a NULL operand; body */
    JINJA_BREAK,
    JINJA_CONTINUE,
};

/* A node of the tree. */
struct jinja_node {
    enum jinja_kind kind;
    int line, depth, op;
    const struct jinja_text *text;
    struct jinja_value value;
    struct jinja_node *a, *b, *c, *d;
    struct jinja_node *list, *body, *other; /* first element of each list */
    struct jinja_node *next;
};

/* A parser with one token of look-ahead. */
struct jinja_parser {
    struct jinja *j;
    struct jinja_lexer lexer;
    struct jinja_token now, next;
    int depth;
};

/* Functions of jinja_expression.c for jinja_parse.c. All return NULL after an error. */
struct jinja_node *jinja_new(struct jinja_parser *p, enum jinja_kind kind);
void jinja_step(struct jinja_parser *p);
/* Enters a nested construct. Returns false and sets an error if the nesting is too deep. */
bool jinja_deeper(struct jinja_parser *p);
bool jinja_at_name(const struct jinja_parser *p, const char *name);
bool jinja_at_op(const struct jinja_parser *p, int op);
bool jinja_take_op(struct jinja_parser *p, int op);
void jinja_expect_op(struct jinja_parser *p, int op);
struct jinja_node *jinja_unexpected(struct jinja_parser *p, const char *wanted);
/* Parses an expression. choose: `a if b` is allowed. */
struct jinja_node *jinja_expression(struct jinja_parser *p, bool choose);
/* Parses an expression, or several with commas, which form a list. */
struct jinja_node *jinja_expressions(struct jinja_parser *p, bool choose);
struct jinja_node *jinja_filters(struct jinja_parser *p, struct jinja_node *of);

/* Returns the first statement of a template; NULL if it has none or j->err is set. */
struct jinja_node *jinja_parse(struct jinja *j, const char *text, size_t n);

/* Evaluation (jinja_eval.c). */
struct jinja_value jinja_eval(struct jinja *j, const struct jinja_node *e);
struct jinja_value jinja_eval_filters(struct jinja *j, const struct jinja_node *f,
                                      struct jinja_value of);
