/* recipe.h - settings of a training run by name: "trimkv:M=64,lr=1e-3".
 *
 * One list of keys serves parsing, the help, the record that gates carry and the text that
 * a checkpoint compares. */
#ifndef KVF_ENGINE_TRAIN_RECIPE_H
#define KVF_ENGINE_TRAIN_RECIPE_H

#include "base/buf.h"
#include "engine/train/trainer.h"

struct recipe {
    const char *name; /* "trimkv", "dbtrimkv", "wgkv": also the method that uses the gates */
    struct trainer_options opt;
};

/* Published names with their defaults, then the keys given, in order; `variant=paper|code`
 * sets several and comes first.  KVF_OK, or KVF_E_ARG with a sentence. */
int recipe_parse(const char *text, struct recipe *ret, struct kvf_diag *d);

/* Appends the keys and values of all settings as the members of a JSON object: "\"lr\": 0.001,
 * ...". `net` is among them only where it is not the method's own, so that checkpoints from before
 * the key existed can go on. */
void recipe_put(struct buf *b, const struct recipe *r);

/* Walks the keys: name and one line of help; false at the end. */
bool recipe_key(int i, const char **ret_name, const char **ret_help);

#endif
