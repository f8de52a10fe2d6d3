/* folders.h - finds the cache folder and the folders of shipped gates and fonts. */
#ifndef KVF_CLI_FOLDERS_H
#define KVF_CLI_FOLDERS_H

#include "base/buf.h"

/* Sets *ret_path to KVFATE_CACHE or ~/.cache/kvfate, then "/" and name. A NULL name gives only the
 * folder. Returns KVF_OK, KVF_E_NOTFOUND if neither KVFATE_CACHE nor HOME is set, or
 * KVF_E_NOMEM. */
int folder_cache(const char *name, struct buf *ret_path);

/* Sets *ret_path as folder_cache() does, and creates the folder and the cache folder if they are
 * missing. */
int folder_cache_make(const char *name, struct buf *ret_path);

/* Appends the cache folder of the Hugging Face hub, as its client finds it: HF_HUB_CACHE, HF_HOME
 * and "/hub", or ~/.cache/huggingface/hub. */
void folder_hub(struct buf *ret_path);

#define GATES_ENDING ".safetensors" /* of the names of shipped gates */

/* Returns the folder of shipped gates. It is KVFATE_GATES if set, else ../share/kvfate/gates
 * relative to the folder of the program, else the installed folder, else the folder in the source
 * tree. */
const char *folder_gates(void);

/* Lets fontconfig read ../share/kvfate/fonts/fonts.conf, relative to the folder of the program, if
 * that file exists and the variable FONTCONFIG_FILE is not set. A wheel has this file. Call it
 * before threads start. Returns KVF_OK or KVF_E_NOMEM. */
int folder_fonts_use(void);

/* Resolves the value of --gates to a path. A value with "/", or the name of an existing file, is
 * the path itself. Any other value names a file in folder_gates() without its GATES_ENDING. A value
 * with "." that names no such file is the path itself. Returns KVF_OK, KVF_E_ARG with a sentence,
 * or KVF_E_NOMEM. */
int folder_gates_path(const char *given, struct buf *ret_path, struct kvf_diag *d);

/* Finds the shipped gates for a method and a model: a file MODEL-NAME.safetensors, where the
 * method is NAME or NAME-..., made for the model with this hash, of a kind in `kinds` (bits 1 <<
 * gate_kind). Takes the first by name. Returns KVF_OK, KVF_E_NOTFOUND or KVF_E_NOMEM. */
int folder_gates_for(const char *method, unsigned kinds, const char *model_hash,
                     struct buf *ret_path);

/* Sets *ret_path to the path `tail`, such as "/share/kvfate/gates", relative to the folder that is
 * `up` levels above the folder of the program. Returns KVF_OK, KVF_E_NOTFOUND if no file or folder
 * exists there, or KVF_E_NOMEM. */
int folder_beside(int up, const char *tail, struct buf *ret_path);

#endif
