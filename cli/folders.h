/* folders.h - folders that the program looks into: the cache and the gates it ships. */
#ifndef KVF_CLI_FOLDERS_H
#define KVF_CLI_FOLDERS_H

#include "base/buf.h"

#define FOLDER_DEFAULT_MODEL "SmolLM2-135M-Instruct.Q4_1.gguf" /* in the cache */

/* KVFATE_CACHE or ~/.cache/kvfate, then "/" and name (NULL: the folder alone).  KVF_OK,
 * KVF_E_NOTFOUND without either variable, KVF_E_NOMEM. */
int folder_cache(const char *name, struct buf *ret_path);

/* As folder_cache; the folder, and the cache folder too, are made when they are missing. */
int folder_cache_make(const char *name, struct buf *ret_path);

/* Where shipped gates lie: KVFATE_GATES; or else in ../share/kvfate/gates from the folder of the
 * program; or else where they are installed; or else, from a build that is not installed, in the
 * source tree. */
const char *folder_gates(void);

/* What --gates gives, as a path: a file, or the name of one in folder_gates() without
 * ".safetensors" (a name has neither "/" nor "."; a file of that name comes first).
 * KVF_OK, KVF_E_ARG with a sentence, KVF_E_NOMEM. */
int folder_gates_path(const char *given, struct buf *ret_path, struct kvf_diag *d);

/* The shipped gates for a method and a model: MODEL-NAME.safetensors, where the method is
 * NAME or NAME-...; made for the model of this hash; of a kind in `kinds` (1 << gate_kind).
 * The first by name.  KVF_OK, KVF_E_NOTFOUND, KVF_E_NOMEM. */
int folder_gates_for(const char *method, unsigned kinds, const char *model_hash,
                     struct buf *ret_path);

/* What lies at `tail`, such as "/share/kvfate/gates", from the folder that is `up` above the one of
 * the program.  KVF_OK, KVF_E_NOTFOUND where nothing is there, KVF_E_NOMEM. */
int folder_beside(int up, const char *tail, struct buf *ret_path);

#endif
