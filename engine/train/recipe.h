/* recipe.h - parses the settings of a training run: "trimkv:M=64,lr=1e-3".
 *
 * One list of keys serves the parser, the help text, the record in gate files and the configuration
 * text of checkpoints. */
#pragma once

#include "base/buf.h"
#include "engine/train/trainer.h"

/* A method with its training options. */
struct recipe {
    const char *name; /* "trimkv", "dbtrimkv" or "wgkv": also the method that uses the gates */
    struct trainer_options opt;
};

/* Parses a published name, which sets defaults, and the keys after it, in order.
 * `variant=paper|code` sets several options and comes first. Returns KVF_OK, or KVF_E_ARG with a
 * message. */
int recipe_parse(const char *text, struct recipe *ret, struct kvf_diag *d);

/* Appends the keys and values of all settings as members of a JSON object: "\"lr\": 0.001, ...".
 * `net` is only included if it differs from the method's default, so that checkpoints from before
 * this key can resume. */
void recipe_put(struct buf *b, const struct recipe *r);

/* Returns key i and its line of help. Returns false after the last key. */
bool recipe_key(int i, const char **ret_name, const char **ret_help);
