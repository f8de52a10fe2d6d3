/* models_of_file.h - what `kvfate models FILE` says of one model. */
#ifndef KVF_CLI_MODELS_OF_FILE_H
#define KVF_CLI_MODELS_OF_FILE_H

#include <stdbool.h>

#include <kvf/err.h>

/* Prints what the file or folder is, what it needs in memory and which gates are known for it, on
 * the standard output.  pre: as in tokenizer_create_as.  length: of the session that memory is said
 * for; 0: some.  Of the weights nothing is read but names, shapes and types.  KVF_OK, or codes of
 * model_file_open, model_config_read, tokenizer_create and weights_bytes with a sentence. */
int models_of_file(const char *path, const char *pre, int length, bool json, struct kvf_diag *d);

#endif
