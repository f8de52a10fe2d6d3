/* info_gates.c - `kvfate trace info` for a file of gates. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/info_gates.h"
#include "cli/shown.h"
#include "engine/gate/gate.h"

bool looks_like_gates(const char *path)
{
    unsigned char b[9] = {0};
    struct stat s; /* only regular files, because bytes read from a pipe here would be lost */
    FILE *f = stat(path, &s) == 0 && S_ISREG(s.st_mode) ? fopen(path, "rb") : NULL;
    bool whole = f && fread(b, 1, sizeof b, f) == sizeof b;
    if (f)
        fclose(f);
    return whole
           && (memcmp(b, "PK\3\4", 4) == 0 || memcmp(b, "\x80\2\x8a\x0a", 4) == 0
               || (b[8] == '{' && memcmp(b + 4, "\0\0\0", 4) == 0));
}

static void put_text(struct buf *b, const char *key, const char *text)
{
    json_put_key(b, key);
    json_put_str(b, text, strlen(text));
}

static void put_size(struct buf *b, const char *key, double v)
{
    json_put_key(b, key);
    if (v > 0)
        json_put_num(b, v);
    else
        buf_str(b, "null");
}

static int print_json(const struct gates *g)
{
    const struct gates_model *m = gates_model_of(g);
    struct buf b = {0};
    buf_char(&b, '{');
    put_text(&b, "kind", gates_kind_name(gates_kind(g)));
    put_text(&b, "layout", gates_layout(g));
    put_text(&b, "container", "safetensors");
    put_text(&b, "hash", gates_hash(g));
    put_size(&b, "layers", m->n_layers);
    put_size(&b, "kv_heads", m->n_kv_heads);
    put_size(&b, "heads", m->n_heads);
    put_size(&b, "head_dim", m->head_dim);
    put_size(&b, "d_model", m->d_model);
    put_size(&b, "hidden", gates_hidden(g));
    put_size(&b, "gate_dim", gates_gate_dim(g));
    put_size(&b, "block", gates_block_size(g));
    put_size(&b, "positions", gates_positions(g) < INT32_MAX ? gates_positions(g) : 0);
    json_put_key(&b, "tied");
    buf_str(&b, gates_tied(g) ? "true" : "false");
    put_size(&b, "bytes", (double)gates_bytes(g));
    json_put_key(&b, "metadata");
    json_put_text(&b, gates_meta(g));
    buf_str(&b, "}\n");
    int err = b.err;
    if (!err)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return err ? EXIT_FAILED : EXIT_OK;
}

static void print_size(const char *name, int n)
{
    if (n > 0)
        printf(", %s %d", name, n);
}

static void print_meta(const struct gates *g)
{
    struct json *root = NULL;
    const char *meta = gates_meta(g), *sep = "";
    if (json_parse(meta, strlen(meta), &root, NULL) != KVF_OK)
        return;
    struct buf b = {0};
    buf_printf(&b, "%-10s", "metadata");
    for (const struct json *m = json_first(root); m; m = json_next(m), sep = ", ")
        buf_printf(&b, "%s%s %s", sep, json_key(m), json_str(m, ""));
    buf_printf(&b, "%s\n", *sep ? "" : "none");
    if (!b.err)
        shown_print(b.data, b.len);
    buf_finish(&b);
    json_free(root);
}

static int print_text(const struct gates *g)
{
    const struct gates_model *m = gates_model_of(g);
    printf("%s: gates of kind %s, layout %s, in a safetensors file\n",
           shown_name(gates_path(g)).text, gates_kind_name(gates_kind(g)), gates_layout(g));
    printf("%-10slayers %d, kv heads %d", "model", m->n_layers, m->n_kv_heads);
    print_size("heads", m->n_heads);
    print_size("head dim", m->head_dim);
    print_size("d_model", m->d_model);
    printf("\n%-10s%zu bytes", "weights", gates_bytes(g));
    print_size("hidden", gates_hidden(g));
    print_size("gate dim", gates_gate_dim(g));
    print_size("block", gates_block_size(g));
    print_size("positions", gates_positions(g) < INT32_MAX ? gates_positions(g) : 0);
    /* the gates are a network */
    if (gates_kind(g) == GATE_RETENTION && gates_positions(g) == INT32_MAX)
        printf(", readout %s", gates_tied(g) ? "equal in all layers" : "of each layer its own");
    printf("\n%-10s%s\n", "hash", gates_hash(g));
    print_meta(g);
    return EXIT_OK;
}

int info_gates(const struct command *self, const char *path, bool json)
{
    struct kvf_diag d = {""};
    struct gates *g = NULL;
    int err = gates_read(path, &g, &d);
    if (err) {
        command_print_error(self, err, &d);
        return EXIT_FAILED;
    }
    int status = json ? print_json(g) : print_text(g);
    gates_close(g);
    return status;
}
