/* cmd_models.c - `kvfate models` lists the models that can be loaded, or describes one model and
 * its requirements. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/model_list.h"
#include "cli/models_json.h"
#include "cli/models_of_file.h"
#include "cli/package.h"
#include "engine/gate/published.h"
#include "engine/model/family.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"

/* Size of a matrix that blocks of every type divide evenly, so that bits per weight are exact. */
enum { CELLS = 256, ROWS_AT_ONCE = PANEL };

static double bits_in_file(enum weight_type type)
{
    return 8.0 * (double)weight_bytes(type, CELLS) / CELLS;
}

static double bits_in_memory(enum weight_type type)
{
    const struct pack_source source = {NULL, type, ROWS_AT_ONCE};
    return 8.0 * (double)packed_bytes(&source, 1, CELLS, PACK_AS_STORED) / (CELLS * ROWS_AT_ONCE);
}

enum { LINE = 98 };

/* Prints words separated by spaces, and breaks lines before LINE columns. The first line continues
 * at `column`; later lines begin with `indent` spaces. */
static void print_words(const char *text, size_t n, size_t column, int indent)
{
    for (size_t at = 0, len; at < n; at += len + 1) {
        const char *space = memchr(text + at, ' ', n - at);
        len = space ? (size_t)(space - text) - at : n - at;
        if (column + 1 + len > LINE) {
            printf("\n%*s", indent - 1, "");
            column = (size_t)indent - 1;
        }
        column += (size_t)printf(" %.*s", (int)len, text + at);
    }
    printf("\n");
}

static int print_families(void)
{
    struct buf traits = {0};
    printf("families (general.architecture of a GGUF file, or model_type of a folder)\n");
    for (int i = 0; family_at(i); i++) {
        traits.len = 0;
        buf_str(&traits, "with ");
        family_traits(family_at(i), &traits);
        if (traits.err)
            break;
        printf("  %-8s  %s\n", family_at(i)->name, family_at(i)->models);
        if (traits.len > strlen("with ")) {
            printf("           ");
            print_words(traits.data, traits.len, 11, 12);
        }
    }
    const int err = traits.err;
    buf_finish(&traits);
    return err;
}

/* Prints the model families that are not supported. Families with the same reason share a line. */
static int print_unsupported(void)
{
    struct buf names = {0};
    const char *why = NULL, *next = NULL;
    printf("\nrefused\n");
    for (int i = 0; family_refused_at(i, &why); i++) {
        buf_printf(&names, "%s%s", names.len ? " " : "", family_refused_at(i, &why));
        if (family_refused_at(i + 1, &next) && strcmp(next, why) == 0)
            continue;
        if (names.err)
            break;
        size_t column = (size_t)printf("  %s:", why);
        print_words(names.data, names.len, column, 4);
        names.len = 0;
    }
    const int err = names.err;
    buf_finish(&names);
    return err;
}

static void print_types(void)
{
    enum weight_type type = WEIGHT_F32;
    printf("\ntypes of weights  bits in the file  bits in memory\n");
    for (size_t i = 0; weight_type_at(i, &type); i++)
        if (weight_block(type))
            printf("  %-15s  %16.4g  %14.4g\n", weight_type_name(type), bits_in_file(type),
                   bits_in_memory(type));
}

static int print_tokenizers(void)
{
    struct buf names = {0};
    printf("\ntokenizers (tokenizer.ggml.model)\n");
    for (int i = 0; tokenizer_kind_at(i); i++)
        printf("  %-8s  %s\n", tokenizer_kind_at(i)->key, tokenizer_kind_at(i)->what);
    printf("\nrules for the words of byte-level BPE (tokenizer.ggml.pre)\n ");
    for (int i = 0; tokenizer_pre_at(i); i++)
        buf_printf(&names, "%s%s", i ? " " : "", tokenizer_pre_at(i));
    if (!names.err)
        print_words(names.data, names.len, 1, 2);
    const int err = names.err;
    buf_finish(&names);
    return err;
}

/* Prints the models that `get` fetches, and whether they are in the cache folder. */
static int print_listed(void)
{
    printf("models that 'kvfate models get NAME' fetches\n");
    for (const struct listed_model *m = model_list; m->name; m++) {
        struct buf path = {0};
        struct kvf_diag unused;
        int err = model_path(m->name, &path, &unused);
        printf("  %-18s  %4.0f MB  %-6s  %s; %s%s\n", m->name, (double)m->bytes / 1e6, m->family,
               m->title, m->licence, err ? "" : "; fetched");
        buf_finish(&path);
        if (err == KVF_E_NOMEM)
            return err;
    }
    printf("\n");
    return KVF_OK;
}

static int print_all(void)
{
    int err = print_listed();
    if (!err)
        err = print_families();
    if (!err)
        err = print_unsupported();
    if (err)
        return err;
    print_types();
    err = print_tokenizers();
    printf("\n'kvfate models MODEL' prints the family of a model, its memory and its shipped "
           "gates.\n");
    return err;
}

static void put_families(struct buf *b)
{
    const char *why = NULL;
    json_put_key(b, "families");
    for (int i = 0; family_at(i); i++) {
        struct buf traits = {0};
        family_traits(family_at(i), &traits);
        buf_str(b, i ? ",{" : "[{");
        json_put_member_str(b, "arch", family_at(i)->name);
        json_put_member_str(b, "models", family_at(i)->models);
        json_put_key(b, "traits");
        json_put_str(b, traits.len ? traits.data : "", traits.len);
        buf_char(b, '}');
        b->err = b->err ? b->err : traits.err;
        buf_finish(&traits);
    }
    buf_char(b, ']');
    json_put_key(b, "refused");
    buf_char(b, '{');
    for (int i = 0; family_refused_at(i, &why); i++) {
        const char *name = family_refused_at(i, &why);
        json_put_member_str(b, name, why);
    }
    buf_char(b, '}');
}

static void put_types(struct buf *b)
{
    enum weight_type type = WEIGHT_F32;
    const char *open = "[{";
    json_put_key(b, "types");
    for (size_t i = 0; weight_type_at(i, &type); i++) {
        if (!weight_block(type))
            continue;
        buf_str(b, open);
        json_put_member_str(b, "name", weight_type_name(type));
        json_put_member_num(b, "bits_in_file", bits_in_file(type));
        json_put_member_num(b, "bits_in_memory", bits_in_memory(type));
        buf_char(b, '}');
        open = ",{";
    }
    buf_char(b, ']');
}

static void put_tokenizers(struct buf *b)
{
    json_put_key(b, "tokenizers");
    buf_char(b, '{');
    for (int i = 0; tokenizer_kind_at(i); i++)
        json_put_member_str(b, tokenizer_kind_at(i)->key, tokenizer_kind_at(i)->what);
    buf_char(b, '}');
    json_put_key(b, "pre_tokenizers");
    for (int i = 0; tokenizer_pre_at(i); i++) {
        buf_char(b, i ? ',' : '[');
        json_put_str(b, tokenizer_pre_at(i), strlen(tokenizer_pre_at(i)));
    }
    buf_char(b, ']');
}

static void put_published(struct buf *b)
{
    json_put_key(b, "published_gates");
    for (int i = 0; published_gates_at(i); i++) {
        const struct published_gates *p = published_gates_at(i);
        buf_str(b, i ? ",{" : "[{");
        json_put_member_str(b, "method", p->method);
        json_put_member_str(b, "name", p->name);
        json_put_member_str(b, "base", p->base);
        json_put_key(b, "converts");
        buf_printf(b, "%s}", p->converts ? "true" : "false");
    }
    buf_char(b, ']');
}

static void put_listed(struct buf *b)
{
    json_put_key(b, "listed");
    for (const struct listed_model *m = model_list; m->name; m++) {
        buf_str(b, m == model_list ? "[{" : ",{");
        json_put_member_str(b, "name", m->name);
        json_put_member_str(b, "file", m->file);
        json_put_member_str(b, "sha256", m->sha256);
        json_put_member_num(b, "bytes", (double)m->bytes);
        json_put_member_str(b, "arch", m->family);
        json_put_member_str(b, "licence", m->licence);
        buf_char(b, '}');
    }
    buf_char(b, ']');
}

void models_json(struct buf *b)
{
    buf_char(b, '{');
    put_listed(b);
    put_families(b);
    put_types(b);
    put_tokenizers(b);
    put_published(b);
    buf_char(b, '}');
}

static int print_json(void)
{
    struct buf b = {0};
    models_json(&b);
    buf_char(&b, '\n');
    const int err = b.err;
    if (!err)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return err;
}

struct request {
    int64_t length;
    const char *pre;
    bool json, accept;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "accept", offsetof(struct request, accept), NULL,
     "with get: accept the terms of the model's licence"},
    {OPT_INT, 0, "length", offsetof(struct request, length), "N",
     "length of prompt and answer for which the memory is computed", .absent = "several", .min = 1,
     .max = 1 << 24},
    {OPT_STR, 0, "pre", offsetof(struct request, pre), "NAME",
     "pre-tokenizer of a byte-level vocabulary, as listed by 'kvfate models'",
     .absent = "as in the file"},
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "JSON: an object"},
    {.type = OPT_END},
};

/* Runs `models get NAME`, which is a command of the Python package. */
static int get(const struct request *q, const char *name, struct kvf_diag *d)
{
    char *argv[] = {"models get", "--accept", "--", (char *)name};
    const char *idle = q->length ? "length" : NULL;
    idle = q->pre ? "pre" : idle;
    idle = q->json ? "json" : idle;
    if (idle)
        return kvf_fail(d, KVF_E_ARG, "--%s does not go with get", idle);
    if (q->accept)
        return package_run(4, argv, d);
    argv[1] = argv[0];
    return package_run(3, argv + 1, d);
}

/* Fails with the names that `get` takes. */
static int name_missing(struct kvf_diag *d)
{
    struct buf names = {0};
    for (const struct listed_model *m = model_list; m->name; m++)
        buf_printf(&names, "%s%s", m == model_list ? "" : ", ", m->name);
    kvf_fail(d, KVF_E_ARG, "get needs the name of a model: %s; a file of the name get is ./get",
             names.err ? "'kvfate models' lists them" : names.data);
    buf_finish(&names);
    return KVF_E_ARG;
}

static int cmd_models(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct kvf_diag d = {""};
    int err = KVF_OK;
    if (n == 1 && strcmp(operand[0], "get") == 0) {
        err = name_missing(&d);
    } else if (n == 2 && strcmp(operand[0], "get") == 0) {
        err = get(q, operand[1], &d);
    } else if (n == 2) {
        err = kvf_fail(&d, KVF_E_ARG, "one model at a time, or 'get NAME'; this is '%s %s'",
                       operand[0], operand[1]);
    } else if (q->accept) {
        err = kvf_fail(&d, KVF_E_ARG, "--accept belongs to 'kvfate models get NAME'");
    } else if (!n && (q->length || q->pre)) {
        err = kvf_fail(&d, KVF_E_ARG, "--%s belongs to a model: name its file or folder",
                       q->length ? "length" : "pre");
    } else if (n) {
        err = models_of_file(operand[0], q->pre, (int)q->length, q->json, &d);
    } else if (q->json) {
        err = print_json();
    } else {
        err = print_all();
    }
    return command_end(self, err, &d);
}

const struct command command_models = {
    .name = "models",
    .group = "running",
    .summary = "list models, download one by name, or describe a model file",
    .example = "kvfate models",
    .operands = {"[MODEL] | get NAME", "model", 0, 2},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_models,
};
