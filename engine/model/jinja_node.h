/* jinja_node.h - a parsed chat template.  Private to engine/model. */
#ifndef KVF_ENGINE_JINJA_NODE_H
#define KVF_ENGINE_JINJA_NODE_H

#include "engine/model/jinja_lex.h"

enum jinja_kind {
    /* expressions */
    JINJA_CONST,     /* value */
    JINJA_NAME,      /* text */
    JINJA_MAKE_LIST, /* list: ARG */
    JINJA_MAKE_DICT, /* list: ARG with a the key, b the value */
    JINJA_ATTR,      /* a . text */
    JINJA_ITEM,      /* a [ b ] */
    JINJA_SLICE,     /* a [ b : c : d ], each of the last three may be NULL */
    JINJA_CALL,      /* a ( list ) */
    JINJA_FILTER,    /* a | text ( list ); a NULL: of a block */
    JINJA_TEST,      /* a is text ( list ) */
    JINJA_NOT,       /* of a */
    JINJA_MINUS,     /* of a */
    JINJA_PLUS,      /* of a */
    JINJA_BINARY,    /* a op b; op: of a token, 'a' and, 'o' or */
    JINJA_COMPARE,   /* a, then list: ARG with op and a; op: of a token, 'i' in, 'n' not in */
    JINJA_CHOOSE,    /* b if a else c; c may be NULL */
    JINJA_ARG,       /* a; text: its name, or NULL */
    /* statements */
    JINJA_DATA,     /* text */
    JINJA_PRINT,    /* a */
    JINJA_IF,       /* list: BRANCH */
    JINJA_BRANCH,   /* a, NULL: else; body */
    JINJA_FOR,      /* list: NAMEs; a: what over; b: which, or NULL; body, other */
    JINJA_SET,      /* list: NAMEs, or one ATTR of a NAME; a: the value, NULL: body is */
    JINJA_DEFINE,   /* macro: text; list: ARG with text, a: the default or NULL; body */
    JINJA_SCOPE,    /* body */
    JINJA_FILTERED, /* a: FILTERs around a NULL; body */
    JINJA_BREAK,
    JINJA_CONTINUE,
};

struct jinja_node {
    enum jinja_kind kind;
    int line, depth, op;
    const struct jinja_text *text;
    struct jinja_value value;
    struct jinja_node *a, *b, *c, *d;
    struct jinja_node *list, *body, *other; /* first of each */
    struct jinja_node *next;
};

/* Two tokens of what is parsed. */
struct jinja_parser {
    struct jinja *j;
    struct jinja_lexer lexer;
    struct jinja_token now, next;
    int depth;
};

/* Parsing of expressions (jinja_expression.c), for jinja_parse.c.  All give NULL after an error. */
struct jinja_node *jinja_new(struct jinja_parser *p, enum jinja_kind kind);
void jinja_step(struct jinja_parser *p);
/* Goes deeper into what is nested; false, with an error, where that is too deep. */
bool jinja_deeper(struct jinja_parser *p);
bool jinja_at_name(const struct jinja_parser *p, const char *name);
bool jinja_at_op(const struct jinja_parser *p, int op);
bool jinja_take_op(struct jinja_parser *p, int op);
void jinja_expect_op(struct jinja_parser *p, int op);
struct jinja_node *jinja_unexpected(struct jinja_parser *p, const char *wanted);
/* An expression; choose: `a if b` is one. */
struct jinja_node *jinja_expression(struct jinja_parser *p, bool choose);
/* The same, or several with commas, which are a list. */
struct jinja_node *jinja_expressions(struct jinja_parser *p, bool choose);
struct jinja_node *jinja_filters(struct jinja_parser *p, struct jinja_node *of);

/* The first statement of a template; NULL: it has none, or j->err is set. */
struct jinja_node *jinja_parse(struct jinja *j, const char *text, size_t n);

/* Evaluation (jinja_eval.c). */
struct jinja_value jinja_eval(struct jinja *j, const struct jinja_node *e);
struct jinja_value jinja_eval_filters(struct jinja *j, const struct jinja_node *f,
                                      struct jinja_value of);

#endif
