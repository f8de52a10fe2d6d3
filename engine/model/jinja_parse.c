/* jinja_parse.c - parses statements of a template. Statements outside the table are rejected by
 * name. */
#include "engine/model/jinja_node.h"

#include <string.h>

static struct jinja_node *parse_body(struct jinja_parser *p);

static bool in_block(const struct jinja_parser *p, const char *name)
{
    return p->now.type == JINJA_T_BLOCK && p->next.type == JINJA_T_NAME
           && jinja_is(p->next.text, name);
}

static void end_tag(struct jinja_parser *p)
{
    if (p->now.type == JINJA_T_BLOCK_END)
        jinja_step(p);
    else
        jinja_unexpected(p, "the end of the tag");
}

/* Consumes {% name. Returns false if it is not there. */
static bool take_block(struct jinja_parser *p, const char *name)
{
    if (!in_block(p, name))
        return false;
    jinja_step(p);
    jinja_step(p);
    return true;
}

/* Consumes {% name %}. */
static void close_block(struct jinja_parser *p, const char *name)
{
    if (!take_block(p, name))
        jinja_error(p->j, KVF_E_FORMAT, "{%% %s %%} is expected", name);
    end_tag(p);
}

/* Parses the end of the present tag and the statements after it. */
static struct jinja_node *tag_body(struct jinja_parser *p)
{
    end_tag(p);
    return p->j->err ? NULL : parse_body(p);
}

/* Parses {% if, elif, else %} up to {% endif %}; the position is after "if". */
static struct jinja_node *parse_if(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_new(p, JINJA_IF), **last = n ? &n->list : NULL;
    bool condition = true, more = true;
    while (more && !p->j->err) {
        struct jinja_node *branch = jinja_new(p, JINJA_BRANCH);
        if (!branch)
            return NULL;
        if (condition)
            branch->a = jinja_expressions(p, false);
        branch->body = tag_body(p);
        *last = branch;
        last = &branch->next;
        more = condition && take_block(p, "elif");
        if (!more && condition && take_block(p, "else")) {
            condition = false;
            more = true;
        }
    }
    close_block(p, "endif");
    return n;
}

/* Parses names separated by commas. */
static struct jinja_node *parse_targets(struct jinja_parser *p)
{
    struct jinja_node *first = NULL, **last = &first;
    bool parens = jinja_take_op(p, '(');
    do {
        if (p->now.type != JINJA_T_NAME)
            return jinja_unexpected(p, "the name of a variable");
        *last = jinja_new(p, JINJA_NAME);
        if (!*last)
            return NULL;
        (*last)->text = p->now.text;
        last = &(*last)->next;
        jinja_step(p);
    } while (jinja_take_op(p, ','));
    if (parens)
        jinja_expect_op(p, ')');
    return first;
}

static struct jinja_node *parse_for(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_new(p, JINJA_FOR);
    if (!n)
        return NULL;
    n->list = parse_targets(p);
    if (!p->j->err && !jinja_at_name(p, "in"))
        return jinja_unexpected(p, "'in'");
    jinja_step(p);
    n->a = jinja_expressions(p, false);
    if (!p->j->err && jinja_at_name(p, "if")) {
        jinja_step(p);
        n->b = jinja_expression(p, true);
    }
    if (!p->j->err && jinja_at_name(p, "recursive"))
        jinja_error(p->j, KVF_E_FORMAT, "recursive loops are not done here");
    n->body = tag_body(p);
    if (take_block(p, "else"))
        n->other = tag_body(p);
    close_block(p, "endfor");
    return n;
}

static struct jinja_node *parse_set(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_new(p, JINJA_SET);
    if (!n)
        return NULL;
    n->list = parse_targets(p);
    if (n->list && !n->list->next && jinja_take_op(p, '.')) {
        struct jinja_node *attr = jinja_new(p, JINJA_ATTR);
        if (!attr || p->now.type != JINJA_T_NAME)
            return jinja_unexpected(p, "a name");
        attr->a = n->list;
        attr->text = p->now.text;
        n->list = attr;
        jinja_step(p);
    }
    if (jinja_take_op(p, '=')) {
        n->a = jinja_expressions(p, true);
        end_tag(p);
        return n;
    }
    n->b = jinja_filters(p, NULL); /* NULL if there are no filters */
    n->body = tag_body(p);
    close_block(p, "endset");
    return n;
}

static struct jinja_node *parse_macro(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_new(p, JINJA_DEFINE), **last = n ? &n->list : NULL;
    if (!n || p->now.type != JINJA_T_NAME)
        return jinja_unexpected(p, "the name of a macro");
    n->text = p->now.text;
    jinja_step(p);
    jinja_expect_op(p, '(');
    while (!p->j->err && !jinja_take_op(p, ')')) {
        if (n->list)
            jinja_expect_op(p, ',');
        struct jinja_node *arg = jinja_new(p, JINJA_ARG);
        if (!arg || p->now.type != JINJA_T_NAME)
            return jinja_unexpected(p, "the name of a parameter");
        arg->text = p->now.text;
        jinja_step(p);
        if (jinja_take_op(p, '='))
            arg->a = jinja_expression(p, true);
        *last = arg;
        last = &arg->next;
    }
    n->body = tag_body(p);
    close_block(p, "endmacro");
    return n;
}

/* Parses {% generation %} of the transformers library, whose content is printed. */
static struct jinja_node *parse_generation(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_new(p, JINJA_SCOPE);
    if (n)
        n->body = tag_body(p);
    close_block(p, "endgeneration");
    return n;
}

/* Parses {% filter %}: the text of the block is the operand of the first filter. */
static struct jinja_node *parse_filtered(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_new(p, JINJA_FILTERED);
    struct jinja_token name = p->now;
    if (!n || name.type != JINJA_T_NAME || (p->next.type == JINJA_T_OP && p->next.op == '('))
        return jinja_unexpected(p, "the name of a filter without arguments");
    n->b = jinja_new(p, JINJA_FILTER);
    if (n->b)
        n->b->text = name.text;
    jinja_step(p);
    n->b = jinja_filters(p, n->b);
    n->body = tag_body(p);
    close_block(p, "endfilter");
    return n;
}

static struct jinja_node *parse_jump(struct jinja_parser *p, enum jinja_kind kind)
{
    struct jinja_node *n = jinja_new(p, kind);
    end_tag(p);
    return n;
}

static struct jinja_node *parse_break(struct jinja_parser *p)
{
    return parse_jump(p, JINJA_BREAK);
}

static struct jinja_node *parse_continue(struct jinja_parser *p)
{
    return parse_jump(p, JINJA_CONTINUE);
}

static const struct {
    const char *name;
    struct jinja_node *(*parse)(struct jinja_parser *p);
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"generation", parse_generation},
    {"filter", parse_filtered},
    {"break", parse_break},
    {"continue", parse_continue},
};

/* Returns true at a tag that ends or divides the body of another one. */
static bool at_close(const struct jinja_parser *p)
{
    return in_block(p, "else") || in_block(p, "elif")
           || (p->now.type == JINJA_T_BLOCK && p->next.type == JINJA_T_NAME && p->next.text->n > 3
               && memcmp(p->next.text->s, "end", 3) == 0);
}

static struct jinja_node *parse_block(struct jinja_parser *p)
{
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (take_block(p, statements[i].name))
            return statements[i].parse(p);
    jinja_step(p);
    if (p->now.type != JINJA_T_NAME)
        return jinja_unexpected(p, "the name of a statement");
    jinja_error(p->j, KVF_E_FORMAT, "the statement '%.*s' is not known here",
                (int)(p->now.text->n < 40 ? p->now.text->n : 40), p->now.text->s);
    return NULL;
}

static struct jinja_node *parse_statement(struct jinja_parser *p)
{
    struct jinja_node *n = NULL;
    if (p->now.type == JINJA_T_BLOCK)
        return parse_block(p);
    if (p->now.type == JINJA_T_DATA) {
        n = jinja_new(p, JINJA_DATA);
        if (n)
            n->text = p->now.text;
        jinja_step(p);
        return n;
    }
    if (p->now.type != JINJA_T_PRINT)
        return jinja_unexpected(p, "text or a tag");
    n = jinja_new(p, JINJA_PRINT);
    jinja_step(p);
    if (n)
        n->a = jinja_expressions(p, true);
    if (p->now.type == JINJA_T_PRINT_END)
        jinja_step(p);
    else
        jinja_unexpected(p, "the end of the tag");
    return n;
}

static struct jinja_node *parse_body(struct jinja_parser *p)
{
    struct jinja_node *first = NULL, **last = &first;
    if (!jinja_deeper(p))
        return NULL;
    while (!p->j->err && p->now.type != JINJA_T_END && !at_close(p)) {
        *last = parse_statement(p);
        if (*last)
            last = &(*last)->next;
    }
    p->depth--;
    return p->j->err ? NULL : first;
}

struct jinja_node *jinja_parse(struct jinja *j, const char *text, size_t n)
{
    struct jinja_parser p = {.j = j};
    jinja_lex_init(&p.lexer, j, text, n);
    p.now = jinja_lex(&p.lexer);
    p.next = jinja_lex(&p.lexer);
    struct jinja_node *first = parse_body(&p);
    if (!j->err && p.now.type != JINJA_T_END)
        jinja_unexpected(&p, "a statement that opens before it ends");
    return j->err ? NULL : first;
}
