/* recipe.c - the list of training settings, their parser and their defaults by method. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/opt.h"
#include "engine/train/recipe.h"

enum kind { WHOLE, REAL, FLAG, CHOICE, SEED };

/* A setting. */
struct key {
    const char *name;
    enum kind kind;
    size_t at; /* offset in struct trainer_options */
    double min, max;
    const char *const *choice; /* names of the values 0, 1, ... */
    const char *help;
};

static const char *const nets[] = {"rg", "rg10", "linear", "rgkv", "wgkv", NULL};
static const char *const forms[] = {"none", "decay", "logit", "write", NULL};
static const char *const norms[] = {"code", "t", "flat", "sum", NULL};
static const char *const schedules[] = {"constant", "cosine", "wsd", NULL};

#define AT(member) offsetof(struct trainer_options, member)

/* C types: WHOLE int, REAL double, FLAG bool, CHOICE an enum (int), SEED uint64_t. */
static const struct key keys[] = {
    {"net", CHOICE, AT(net.layout), 0, 0, nets, "layout of the gates: rg, rg10, linear or rgkv"},
    {"hidden", WHOLE, AT(net.hidden), 1, 4096, NULL, "width of the gates' hidden layers"},
    {"bias", REAL, AT(net.bias), -50, 50, NULL, "initial bias of the readout"},
    {"deviation", REAL, AT(net.deviation), 0, 10, NULL, "of initial weights (retention gates)"},
    {"tied", FLAG, AT(net.tied), 0, 0, NULL, "one readout for all layers: 0 or 1"},
    {"net-seed", SEED, AT(net.seed), 0, 9e15, NULL, "of the initial weights"},
    {"form", CHOICE, AT(pass.gating), 0, 0, forms, "gated attention: decay, logit or write"},
    {"window", WHOLE, AT(pass.window), 1, 1 << 20, NULL,
     "write gates: newest entries that are never dropped"},
    {"fwkl", REAL, AT(pass.quality[QUALITY_FWKL]), 0, 1e6, NULL, "weight of KL(full || gated)"},
    {"rvkl", REAL, AT(pass.quality[QUALITY_RVKL]), 0, 1e6, NULL, "weight of KL(gated || full)"},
    {"ntp", REAL, AT(pass.quality[QUALITY_NTP]), 0, 1e6, NULL, "weight of the next token's loss"},
    {"mse", REAL, AT(pass.quality[QUALITY_MSE]), 0, 1e6, NULL, "weight of hidden states' error"},
    {"lambda", REAL, AT(pass.lambda), 0, 1e6, NULL, "weight of capacity or sparsity"},
    {"M", REAL, AT(pass.M), 0, 1 << 24, NULL, "capacity: entries per KV head"},
    {"global", FLAG, AT(pass.global), 0, 0, NULL, "capacity over all heads together: 0 or 1"},
    {"norm", CHOICE, AT(pass.norm), 0, 0, norms, "capacity's normaliser: code, t, flat or sum"},
    {"offset", FLAG, AT(pass.offset), 0, 0, NULL, "sparsity with the published code's offset"},
    {"lr", REAL, AT(optimizer.lr), 0, 10, NULL, "learning rate"},
    {"min-lr", REAL, AT(optimizer.min_lr), 0, 10, NULL, "at the end"},
    {"beta1", REAL, AT(optimizer.beta1), 0, 1, NULL, "AdamW's first decay"},
    {"beta2", REAL, AT(optimizer.beta2), 0, 1, NULL, "AdamW's second decay"},
    {"eps", REAL, AT(optimizer.eps), 0, 1, NULL, "AdamW's epsilon"},
    {"decay", REAL, AT(optimizer.decay), 0, 10, NULL, "weight decay"},
    {"clip", REAL, AT(optimizer.clip), 0, 1e6, NULL, "largest norm of the gradient; 0: any"},
    {"schedule", CHOICE, AT(optimizer.schedule), 0, 0, schedules, "constant, cosine or wsd"},
    {"decay-share", REAL, AT(optimizer.decay_share), 0, 1, NULL, "wsd: share of steps that decay"},
    {"accumulate", WHOLE, AT(accumulate), 1, 4096, NULL, "packs per step"},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

/* Choices are the values of enums. */
_Static_assert(LAYOUT_RG == 0 && LAYOUT_RG10 == 1 && LAYOUT_LINEAR == 2 && LAYOUT_RGKV == 3
                   && LAYOUT_WGKV == 4,
               "as in nets");

static const struct trainer_options common = {
    .net = {.layout = LAYOUT_RG, .hidden = 128, .bias = 18, .deviation = 0.02},
    .pass = {.gating = GATING_DECAY, .window = 32, .lambda = 1, .M = 64},
    .optimizer = {.lr = 2e-4,
                  .min_lr = 1e-6,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .decay = 1e-6,
                  .clip = 1,
                  .schedule = SCHEDULE_COSINE,
                  .decay_share = 0.9},
    .accumulate = 1,
};

static void set_method(struct trainer_options *o, const char *name)
{
    *o = common;
    if (strcmp(name, "dbtrimkv") == 0) {
        o->net.layout = LAYOUT_RG10;
        o->net.tied = o->pass.global = true;
    } else if (strcmp(name, "wgkv") == 0) {
        o->net.layout = LAYOUT_WGKV;
        o->net.hidden = 96;
        o->net.bias = 0;
        o->pass.gating = GATING_WRITE;
        o->pass.lambda = 0.04;
        o->optimizer.lr = 1e-3;
        o->optimizer.decay = 0.01;
    }
}

static enum layout_id own_net(const char *name)
{
    struct trainer_options o;
    set_method(&o, name);
    return o.net.layout;
}

/* Sets the options that differ between papers and code; docs/reference/gates.md has the table. */
static void set_variant(struct trainer_options *o, const char *name, bool paper)
{
    if (strcmp(name, "wgkv") == 0) {
        o->pass.quality[QUALITY_MSE] = 1;
        o->pass.offset = !paper;
        o->optimizer.schedule = paper ? SCHEDULE_COSINE : SCHEDULE_WSD;
        return;
    }
    o->pass.quality[QUALITY_FWKL] = o->pass.quality[QUALITY_NTP] = paper ? 1 : 0.5;
    o->pass.norm = CAPACITY_CODE;
    if (paper)
        o->pass.norm = o->pass.global ? CAPACITY_SUM : CAPACITY_T;
    if (strcmp(name, "trimkv") == 0)
        o->optimizer.decay = paper ? 0.01 : 1e-6;
}

static int set_choice(const struct key *k, const char *value, int *to)
{
    for (int i = 0; k->choice[i]; i++)
        if (strcmp(k->choice[i], value) == 0) {
            *to = i;
            return KVF_OK;
        }
    return KVF_E_ARG;
}

static int set_key(const struct key *k, const char *value, struct trainer_options *o,
                   struct kvf_diag *d)
{
    void *to = (char *)o + k->at;
    double v = 0;
    if (k->kind == CHOICE)
        return set_choice(k, value, to) == KVF_OK
                   ? KVF_OK
                   : kvf_fail(d, KVF_E_ARG, "%s=%s: it is %s", k->name, value, k->help);
    bool ok = opt_real(value, &v);
    if (k->kind == FLAG)
        ok = ok && (v == 0 || v == 1);
    else
        ok = ok && v >= k->min && v <= k->max && (k->kind == REAL || v == (double)(int64_t)v);
    if (!ok)
        return kvf_fail(d, KVF_E_ARG, "%s=%s: it needs a %snumber from %g to %g", k->name, value,
                        k->kind == REAL ? "" : "whole ", k->kind == FLAG ? 0 : k->min,
                        k->kind == FLAG ? 1 : k->max);
    switch (k->kind) {
    case WHOLE:
        *(int *)to = (int)v;
        break;
    case REAL:
        *(double *)to = v;
        break;
    case FLAG:
        *(bool *)to = v != 0;
        break;
    case SEED:
        *(uint64_t *)to = (uint64_t)v;
        break;
    case CHOICE:
        break;
    }
    return KVF_OK;
}

static int set_pair(const char *key, const char *value, const char *name, struct trainer_options *o,
                    struct kvf_diag *d)
{
    if (strcmp(key, "variant") == 0) {
        bool paper = strcmp(value, "paper") == 0;
        if (!paper && strcmp(value, "code") != 0)
            return kvf_fail(d, KVF_E_ARG, "variant=%s: it is paper or code", value);
        set_variant(o, name, paper);
        return KVF_OK;
    }
    for (int i = 0; i < N_KEYS; i++)
        if (strcmp(keys[i].name, key) == 0)
            return set_key(&keys[i], value, o, d);
    return kvf_fail(d, KVF_E_ARG,
                    "--method %s has no setting '%s'; kvfate train --settings lists "
                    "them",
                    name, key);
}

/* Checks the layout of the gates. Retention methods accept retention layouts; only dbtrimkv accepts
 * rg10. */
static int check_net(const struct recipe *r, struct kvf_diag *d)
{
    enum layout_id net = r->opt.net.layout, own = own_net(r->name);
    bool write = own == LAYOUT_WGKV, deep = own == LAYOUT_RG10;
    if (net == own || (!write && net != LAYOUT_WGKV && (deep || net != LAYOUT_RG10)))
        return KVF_OK;
    const char *good = deep ? "rg10, rg, linear or rgkv" : "rg, linear or rgkv";
    return kvf_fail(d, KVF_E_ARG, "--method %s: net=%s is not a layout of its gates; it is %s",
                    r->name, nets[net], write ? "wgkv" : good);
}

/* Sets the hidden width. 0 (no key) selects the method's default, except for a single linear
 * layer. */
static int settle_hidden(struct recipe *r, int own, struct kvf_diag *d)
{
    struct net_options *net = &r->opt.net;
    if (net->layout == LAYOUT_LINEAR && net->hidden)
        return kvf_fail(d, KVF_E_ARG,
                        "--method %s: net=linear has no hidden layer; leave out "
                        "hidden=%d",
                        r->name, net->hidden);
    if (net->layout != LAYOUT_LINEAR && !net->hidden)
        net->hidden = own;
    return KVF_OK;
}

static int check(const struct recipe *r, struct kvf_diag *d)
{
    const struct trainer_options *o = &r->opt;
    bool write = o->net.layout == LAYOUT_WGKV;
    double sum = 0;
    if (check_net(r, d) != KVF_OK)
        return KVF_E_ARG;
    for (int i = 0; i < QUALITY_TERMS; i++)
        sum += o->pass.quality[i];
    if (write != (o->pass.gating == GATING_WRITE) || o->pass.gating == GATING_NONE)
        return kvf_fail(d, KVF_E_ARG, "--method %s: form=%s is not a form of its gates", r->name,
                        forms[o->pass.gating]);
    if (sum <= 0)
        return kvf_fail(d, KVF_E_ARG, "--method %s: one of fwkl, rvkl, ntp and mse must be above 0",
                        r->name);
    return KVF_OK;
}

int recipe_parse(const char *text, struct recipe *ret, struct kvf_diag *d)
{
    static const char *const names[] = {"trimkv", "dbtrimkv", "wgkv"};
    size_t len = strcspn(text, ":");
    char key[48], value[48];
    memset(ret, 0, sizeof *ret);
    for (int i = 0; i < 3; i++)
        if (strlen(names[i]) == len && strncmp(names[i], text, len) == 0)
            ret->name = names[i];
    if (!ret->name)
        return kvf_fail(d, KVF_E_ARG,
                        "--method '%.*s' has no gates to train; it is trimkv, "
                        "dbtrimkv or wgkv",
                        (int)(len < 40 ? len : 40), text);
    set_method(&ret->opt, ret->name);
    set_variant(&ret->opt, ret->name, true);
    const char *s = text[len] ? text + len + 1 : text + len;
    int hidden = ret->opt.net.hidden;
    ret->opt.net.hidden = 0;
    for (;;) {
        int more = opt_pair(&s, key, value, sizeof key);
        if (more == 0)
            break;
        if (more < 0)
            return kvf_fail(d, KVF_E_ARG, "--method %s: '%.40s' is not key=value", ret->name, s);
        int err = set_pair(key, value, ret->name, &ret->opt, d);
        if (err)
            return err;
    }
    int err = settle_hidden(ret, hidden, d);
    return err ? err : check(ret, d);
}

void recipe_put(struct buf *b, const struct recipe *r)
{
    const char *sep = "";
    for (int i = 0; i < N_KEYS; i++) {
        const void *from = (const char *)&r->opt + keys[i].at;
        if (keys[i].at == AT(net.layout) && r->opt.net.layout == own_net(r->name))
            continue;
        buf_printf(b, "%s\"%s\": ", sep, keys[i].name);
        sep = ", ";
        switch (keys[i].kind) {
        case WHOLE:
            buf_printf(b, "%d", *(const int *)from);
            break;
        case REAL:
            json_put_num(b, *(const double *)from);
            break;
        case FLAG:
            buf_printf(b, "%d", *(const bool *)from);
            break;
        case SEED:
            buf_printf(b, "%llu", (unsigned long long)*(const uint64_t *)from);
            break;
        case CHOICE:
            buf_printf(b, "\"%s\"", keys[i].choice[*(const int *)from]);
            break;
        }
    }
}

bool recipe_key(int i, const char **ret_name, const char **ret_help)
{
    if (i >= N_KEYS)
        return false;
    *ret_name = keys[i].name;
    *ret_help = keys[i].help;
    return true;
}
