/* published.h - the table of gates that authors have published for existing models.
 *
 * An entry names a file and the model that it was trained for.  This repository does not contain
 * the files.  Names and base models are from the authors' pages, which docs/reference/gates.md
 * cites.  Shapes are from the published configurations of the models. */
#pragma once

#include <stdbool.h>

struct published_gates {
    const char *method; /* the preset of --method that uses them */
    const char *name;   /* where they are: "OWNER/REPOSITORY", or a file or folder in one */
    const char *base;   /* the model */
    bool converts;      /* `kvfate gates convert` makes a readable file of the published one; else
                           its tensors must be saved as safetensors with the metadata of
                           docs/reference/gates.md */
    /* The model's shape; arch as in family.h. */
    const char *arch;
    int n_layers, d_model, n_heads, n_kv_heads, head_dim, vocab;
};

/* Returns the i-th entry, or NULL after the last. */
const struct published_gates *published_gates_at(int i);
