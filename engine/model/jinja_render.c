/* jinja_render.c - executes the statements of a template. */
#include "engine/model/jinja.h"

#include <string.h>

#include "engine/model/jinja_run.h"
#include "engine/model/jinja_words.h"

enum jinja_jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE };

enum { MEMORY = 16 << 20, WORK = 4 << 20 };

static void run_body(struct jinja *j, const struct jinja_node *first);

static struct jinja_frame *open_frame(struct jinja *j, struct jinja_frame *around)
{
    struct jinja_frame *f = jinja_alloc(j, 1, sizeof *f);
    if (f)
        f->around = around;
    return f;
}

/* Returns the text that a body prints, executed in the given scope. */
static const struct jinja_text *capture(struct jinja *j, const struct jinja_node *body,
                                        struct jinja_frame *frame)
{
    struct jinja_out out = {0}, *outer = j->out;
    struct jinja_frame *saved = j->frame;
    if (!j->err && frame) {
        j->out = &out;
        j->frame = frame;
        run_body(j, body);
        j->out = outer;
        j->frame = saved;
    }
    return jinja_taken(j, &out);
}

static void run_if(struct jinja *j, const struct jinja_node *s)
{
    for (const struct jinja_node *b = s->list; b && !j->err; b = b->next) {
        struct jinja_value v = b->a ? jinja_eval(j, b->a) : jinja_bool(true);
        if (j->err || !jinja_true(&v))
            continue;
        run_body(j, b->body);
        return;
    }
}

/* Assigns a value to the names of `set` or `for`: to one name, or its items to several names. */
static void bind(struct jinja *j, const struct jinja_node *names, struct jinja_value v)
{
    if (!names->next) {
        jinja_assign(j, names->text, v);
        return;
    }
    const struct jinja_list *list = jinja_items(j, &v);
    int n = 0;
    for (const struct jinja_node *t = names; t; t = t->next)
        n++;
    if (!j->err && list->n != n)
        jinja_error(j, KVF_E_FORMAT, "%d names take %d values", n, list->n);
    n = 0;
    for (const struct jinja_node *t = names; t && !j->err; t = t->next)
        jinja_assign(j, t->text, list->item[n++]);
}

/* Returns the items for which the condition of a loop is true. */
static const struct jinja_list *chosen(struct jinja *j, const struct jinja_node *s,
                                       const struct jinja_list *all)
{
    struct jinja_value kept = jinja_list(j, all->n);
    int n = 0;
    struct jinja_frame *outer = j->frame;
    for (int i = 0; i < all->n && !j->err; i++) {
        j->frame = open_frame(j, outer);
        if (j->err)
            break;
        bind(j, s->list, all->item[i]);
        struct jinja_value v = jinja_eval(j, s->b);
        if (!j->err && jinja_true(&v))
            kept.u.list->item[n++] = all->item[i];
    }
    j->frame = outer;
    if (j->err)
        return all;
    kept.u.list->n = n;
    return kept.u.list;
}

static void run_for(struct jinja *j, const struct jinja_node *s)
{
    struct jinja_value over = jinja_eval(j, s->a);
    const struct jinja_list *list = j->err ? NULL : jinja_items(j, &over);
    struct jinja_frame *outer = j->frame;
    const struct jinja_text *name = jinja_text(j, "loop", 4);
    if (list && s->b && !j->err)
        list = chosen(j, s, list);
    struct jinja_loop *loop = jinja_alloc(j, 1, sizeof *loop);
    if (!loop || !list)
        return;
    loop->list = list;
    for (; loop->at < list->n && !j->err && j->jump != JUMP_BREAK; loop->at++) {
        j->jump = JUMP_NONE;
        j->frame = open_frame(j, outer);
        if (j->err)
            break;
        jinja_assign(j, name, (struct jinja_value){JINJA_LOOP, {.loop = loop}});
        bind(j, s->list, list->item[loop->at]);
        run_body(j, s->body);
    }
    j->jump = JUMP_NONE;
    j->frame = outer;
    if (list->n == 0 && s->other && !j->err) {
        j->frame = open_frame(j, outer);
        run_body(j, s->other);
        j->frame = outer;
    }
}

/* Sets a member; only a namespace can be changed. */
static void set_member(struct jinja *j, const struct jinja_node *target, struct jinja_value v)
{
    struct jinja_value of = jinja_eval(j, target->a);
    if (j->err)
        return;
    if (of.type == JINJA_NAMESPACE)
        jinja_set(j, of.u.dict, target->text, v);
    else
        jinja_error(j, KVF_E_FORMAT, "a member of %s is set, and only a namespace may change",
                    jinja_type_name(&of));
}

static void run_set(struct jinja *j, const struct jinja_node *s)
{
    struct jinja_value v;
    if (s->a) {
        v = jinja_eval(j, s->a);
    } else {
        v = jinja_of_text(capture(j, s->body, open_frame(j, j->frame)));
        if (s->b && !j->err)
            v = jinja_eval_filters(j, s->b, v);
    }
    if (j->err)
        return;
    if (s->list->kind == JINJA_ATTR)
        set_member(j, s->list, v);
    else
        bind(j, s->list, v);
}

static void run_define(struct jinja *j, const struct jinja_node *s)
{
    struct jinja_macro *macro = jinja_alloc(j, 1, sizeof *macro);
    if (!macro)
        return;
    *macro = (struct jinja_macro){s, j->frame};
    jinja_assign(j, s->text, (struct jinja_value){JINJA_MACRO, {.macro = macro}});
}

/* Binds the parameters of a macro in the frame of the call. */
static void bind_parameters(struct jinja *j, const struct jinja_macro *macro,
                            const struct jinja_args *args)
{
    int at = 0, used = 0;
    for (const struct jinja_node *p = macro->define->list; p && !j->err; p = p->next, at++) {
        const struct jinja_value *given = at < args->n ? &args->v[at] : NULL;
        for (int i = 0; !given && i < args->n_named; i++)
            if (jinja_same(args->name[i], p->text)) {
                given = &args->named[i];
                used++;
            }
        struct jinja_value v = given ? *given : jinja_undefined(j, p->text->s, p->text->n);
        if (!given && p->a)
            v = jinja_eval(j, p->a);
        jinja_assign(j, p->text, v);
    }
    if (!j->err && (args->n > at || used < args->n_named))
        jinja_error(j, KVF_E_FORMAT, "a macro is called with arguments that it does not name");
}

static struct jinja_value call_macro(struct jinja *j, const struct jinja_macro *macro,
                                     const struct jinja_args *args)
{
    struct jinja_frame *saved = j->frame, *own = open_frame(j, macro->around);
    if (!own)
        return jinja_none();
    j->frame = own;
    bind_parameters(j, macro, args);
    j->frame = saved;
    const struct jinja_text *t = capture(j, macro->define->body, own);
    if (j->jump)
        return jinja_error(j, KVF_E_FORMAT, "break or continue is outside of a loop");
    return jinja_of_text(t);
}

static void run_filtered(struct jinja *j, const struct jinja_node *s)
{
    struct jinja_value v = jinja_of_text(capture(j, s->body, open_frame(j, j->frame)));
    if (!j->err)
        v = jinja_eval_filters(j, s->b, v);
    if (!j->err)
        jinja_put(j, j->out, jinja_printed(j, &v));
}

static void run_scope(struct jinja *j, const struct jinja_node *s)
{
    struct jinja_frame *outer = j->frame;
    j->frame = open_frame(j, outer);
    if (!j->err)
        run_body(j, s->body);
    j->frame = outer;
}

static void print(struct jinja *j, const struct jinja_node *s)
{
    struct jinja_value v = jinja_eval(j, s->a);
    if (!j->err)
        jinja_put(j, j->out, jinja_printed(j, &v));
}

static void run_data(struct jinja *j, const struct jinja_node *s)
{
    jinja_put(j, j->out, s->text);
}

static void run_jump(struct jinja *j, const struct jinja_node *s)
{
    j->jump = s->kind == JINJA_BREAK ? JUMP_BREAK : JUMP_CONTINUE;
}

/* Indexed by the kinds of statements. */
static void (*const run[])(struct jinja *j, const struct jinja_node *s) = {
    [JINJA_DATA] = run_data,    [JINJA_PRINT] = print,           [JINJA_IF] = run_if,
    [JINJA_FOR] = run_for,      [JINJA_SET] = run_set,           [JINJA_DEFINE] = run_define,
    [JINJA_SCOPE] = run_scope,  [JINJA_FILTERED] = run_filtered, [JINJA_BREAK] = run_jump,
    [JINJA_CONTINUE] = run_jump};

static void run_body(struct jinja *j, const struct jinja_node *first)
{
    if (j->depth >= JINJA_MAX_DEPTH * 2)
        jinja_error(j, KVF_E_LIMIT, "it calls itself, or is nested, too deep");
    j->depth++;
    for (const struct jinja_node *s = first; s && !j->jump && jinja_work(j, 1); s = s->next) {
        j->line = s->line;
        run[s->kind](j, s);
    }
    j->depth--;
}

void jinja_init(struct jinja *j, size_t bytes, const char *date, struct kvf_diag *d)
{
    *j = (struct jinja){.memory_left = MEMORY + 16 * bytes,
                        .work_left = WORK + 4 * bytes,
                        .d = d,
                        .line = 1,
                        .date = date,
                        .call_macro = call_macro};
}

static void define_functions(struct jinja *j)
{
    static const struct {
        const char *name;
        enum jinja_function function;
    } functions[] = {{"raise_exception", JINJA_RAISE},
                     {"namespace", JINJA_NAMESPACE_OF},
                     {"range", JINJA_RANGE},
                     {"dict", JINJA_DICT_OF},
                     {"strftime_now", JINJA_STRFTIME}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].function != JINJA_STRFTIME || j->date)
            jinja_assign(j, jinja_text(j, functions[i].name, strlen(functions[i].name)),
                         (struct jinja_value){JINJA_FUNCTION, {.i = functions[i].function}});
}

int jinja_render(struct jinja *j, const char *text, size_t n, const struct jinja_dict *variables,
                 const struct jinja_text **ret_text)
{
    struct jinja_out out = {0};
    const struct jinja_node *first = jinja_parse(j, text, n);
    j->frame = open_frame(j, NULL);
    if (!j->frame)
        return j->err;
    define_functions(j);
    for (const struct jinja_entry *e = variables->first; e && !j->err; e = e->next)
        jinja_assign(j, e->key, e->value);
    j->frame = open_frame(j, j->frame);
    j->out = &out;
    if (!j->err)
        run_body(j, first);
    if (!j->err && j->jump)
        jinja_error(j, KVF_E_FORMAT, "break or continue is outside of a loop");
    const struct jinja_text *t = jinja_taken(j, &out);
    if (!j->err)
        *ret_text = t;
    return j->err;
}
