/* models_of_file.h - prints the description of one model for `kvfate models FILE`. */
#ifndef KVF_CLI_MODELS_OF_FILE_H
#define KVF_CLI_MODELS_OF_FILE_H

#include <stdbool.h>

#include <kvf/err.h>

/* Prints on the standard output the description of a model file or folder, its memory use, and its
 * known gates. pre: pre-tokenizer, as in tokenizer_create_as(). length: tokens of the session for
 * which memory use is printed; 0 chooses several lengths. Reads names, shapes and types of the
 * weights, but not their values. Returns KVF_OK, or an error of model_file_open(),
 * model_config_read(), tokenizer_create_as() or weights_bytes() with a sentence. */
int models_of_file(const char *path, const char *pre, int length, bool json, struct kvf_diag *d);

#endif
